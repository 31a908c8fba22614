"""Verdicts on loss curves, with answers known beforehand."""

import math
import subprocess
import sys

import pytest

from sweeper.parity import coarser, compare_losses, tolerance_of


def test_a_loss_that_checkpointing_changed_is_different() -> None:
    # C31b
    parity = compare_losses([2.195], [2.495], compute_dtype="float32", tolerance=0.01)
    assert parity.verdict == "different"
    assert parity.difference == pytest.approx(0.300)
    assert parity.max_relative_difference == pytest.approx(0.137, abs=5e-4)
    again = compare_losses([2.195], [2.194], compute_dtype="float32", tolerance=0.01)
    assert again.verdict == "equal within rounding"
    assert again.difference == pytest.approx(-0.001)


def test_equal_bit_for_bit_means_every_bit() -> None:
    curve = [2.3, 1.7, 1.1]
    parity = compare_losses(curve, list(curve), compute_dtype="float32")
    assert parity.verdict == "equal bit for bit"
    assert parity.step_of_max is None
    off = [2.3, math.nextafter(1.7, 2), 1.1]
    parity = compare_losses(curve, off, compute_dtype="float32")
    assert parity.verdict == "equal within rounding"
    assert parity.step_of_max == 1


def test_the_tolerance_follows_the_dtype() -> None:
    assert tolerance_of("torch.float32") == pytest.approx(3.45e-4, rel=0.01)
    assert tolerance_of("bfloat16") == 0.01
    curve, variant = [1.0, 1.0, 1.0], [1.0, 1.002, 1.001]
    assert compare_losses(curve, variant, compute_dtype="float32").verdict == "different"
    parity = compare_losses(curve, variant, compute_dtype="bfloat16")
    assert parity.verdict == "equal within rounding"
    assert (parity.step_of_max, parity.tolerance, parity.steps) == (1, 0.01, 3)
    assert coarser("float32", "bfloat16") == "bfloat16"
    # What rounding and dropout drawn inside modules were seen to cause in 20 steps of float32.
    assert 1.8e-7 < tolerance_of("float32") < 8e-4


def test_what_is_not_finite_is_different() -> None:
    for bad in (math.nan, math.inf):
        parity = compare_losses([1.0, bad], [1.0, bad], compute_dtype="float32")
        assert parity.verdict == "different"
        assert parity.step_of_max == 1
    assert compare_losses([0.0], [0.0], compute_dtype="float32").verdict == "equal bit for bit"
    assert compare_losses([0.0], [1e-9], compute_dtype="float32").verdict == "different"


def test_only_common_steps_are_compared() -> None:
    assert compare_losses([1.0, 0.9], [1.0], compute_dtype="float32").steps == 1
    with pytest.raises(ValueError, match="no step"):
        compare_losses([1.0], [], compute_dtype="float32")
    with pytest.raises(ValueError, match="unknown dtype"):
        compare_losses([1.0], [1.0], compute_dtype="int8")


def test_the_analysis_can_use_it_without_torch() -> None:
    code = "import sys, sweeper.parity; print('torch' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["False", "False"]
