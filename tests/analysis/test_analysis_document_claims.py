"""What the documents claim: what fits on which device, and their other claims one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from analysis_records import MIB, record
from analysis_verdicts import change, documents, outcomes_of

from analysis.outcome import Outcome
from sweeper.errors import UserError
from sweeper.record import MemoryParts, Record

# --- what fits ------------------------------------------------------------------------------------


def fits(tmp_path: Path, *records: Record, gib: int = 80, machine: str = "A100") -> Outcome:
    text = f"- {{id: f, fits: {{gib: {gib}, machine: {machine}}}, where: {{gpus: 4}}}}"
    return outcomes_of(tmp_path, text, *records)[0]


def ended(status: str, name: str, gib: float | None = None, **more: Any) -> Record:
    one = record(gpus=4, status=status, device_name=name, memory_mib=None, **more)
    one.hardware.device_memory_bytes = None if gib is None else int(gib * 2**30)
    return one


@pytest.mark.parametrize(
    ("name", "gib", "verdict"),
    [
        ("A100 40GB", None, "not tested"),
        ("A100 (some rows exceed 80GB)", None, "not tested"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None, "not tested"),
        ("A100", 39.4, "not tested"),
        ("A100", 79.2, "does not hold"),
        ("A100 80G", None, "does not hold"),
        ("H200 140GB SXM", None, "does not hold"),
    ],
)
def test_running_out_of_memory_counts_on_no_smaller_a_device(
    tmp_path: Path, name: str, gib: float | None, verdict: str
) -> None:
    assert fits(tmp_path, ended("oom", name, gib)).verdict == verdict


@pytest.mark.parametrize("machine", ["A100", "a100", "Nvidia a100"])
def test_the_machine_is_found_in_any_case_of_letters(tmp_path: Path, machine: str) -> None:
    outcome = fits(tmp_path, ended("completed", "NVIDIA A100"), machine=machine)
    assert (outcome.verdict, outcome.remark) == ("holds", "completed")


def test_of_a_device_of_unknown_size_it_says_so(tmp_path: Path) -> None:
    outcome = fits(tmp_path, ended("oom", "A100"))
    assert outcome.remark == "a run ran out of memory on a device of unknown size"


@pytest.mark.parametrize(
    ("name", "gib", "verdict"),
    [("A100", 39.4, "holds"), ("A100", 79.2, "not tested"), ("RTX 3090", 23.7, "holds")],
)
def test_completing_counts_on_no_larger_a_device(
    tmp_path: Path, name: str, gib: float, verdict: str
) -> None:
    assert fits(tmp_path, ended("completed", name, gib), gib=40).verdict == verdict


@pytest.mark.parametrize(("limit", "verdict"), [(10.0, "not tested"), (80.0, "does not hold")])
def test_a_limit_below_the_claim_refutes_nothing(
    tmp_path: Path, limit: float, verdict: str
) -> None:
    one = ended("oom", "H200", 139.8, hardware__memory_limit_gib=limit)
    assert fits(tmp_path, one).verdict == verdict


# --- what the documents say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "verdict"), [(150_000_000, "holds"), (11_000_000, "not tested")]
)
def test_the_worked_case_is_about_150_million_parameters(parameters: int, verdict: str) -> None:
    runs = []
    for precision, ckpt, step in (("fp32", "off", 15.0), ("amp", "on", 4.0)):
        one = record(precision, ckpt, gpus=4, batch=256, step_s=step, device_name="RTX 3090")
        one.numerics.parameters = parameters
        runs.append(one)
    assert documents(*runs)["fifteen-days-to-four"].verdict == verdict


def parts(activations_mib: int) -> MemoryParts:
    return MemoryParts(
        parameters_bytes=10 * MIB,
        gradients_bytes=10 * MIB,
        optimizer_bytes=20 * MIB,
        activations_bytes=activations_mib * MIB,
    )


def test_activations_are_usually_the_largest_part() -> None:
    sizes = (30, 50, 10)  # of the optimizer's 20: 1.5, 2.5 and 0.5
    runs = [record(batch=8 * (i + 1), memory_parts=parts(m)) for i, m in enumerate(sizes)]
    outcome = documents(*runs)["activations-usually-largest"]
    assert outcome.value == pytest.approx(1.5)
    assert (outcome.verdict, outcome.inside, outcome.configurations) == ("holds", 2, 3)
    runs[0].memory.parts = parts(15)
    assert documents(*runs)["activations-usually-largest"].verdict == "does not hold"


def test_time_that_does_not_shrink_has_a_claim_for_each_kind_of_scaling() -> None:
    runs = [record(batch=8), record(gpus=2, batch=16, step_s=0.125)]  # 80 %
    found = documents(*runs)
    weak = found["time-does-not-shrink-linearly-weak"]
    assert (weak.verdict, weak.value) == ("holds", pytest.approx(80.0))
    assert found["time-does-not-shrink-linearly"].verdict == "not tested"


def test_resolution_is_a_models_or_an_imports() -> None:
    id_ = "activations-grow-with-resolution"
    own = [record(model__input_size=n, memory_parts=parts(n)) for n in (32, 64)]
    assert documents(*own)[id_].verdict == "holds"
    sizes = (("256x256 image, latent 32x32x4", 50), ("video 16x512x512", 90))
    known = [record(input=text, memory_mib=m) for text, m in sizes]
    outcome = documents(*known)[id_]
    assert (outcome.verdict, outcome.pairs, outcome.remark) == ("holds", 1, "by peak_bytes")
    shrinks = [record(input=text, memory_mib=100 - m) for text, m in sizes]
    assert documents(*shrinks)[id_].verdict == "does not hold"
    small = [record(model="x", input=t, memory_parts=parts(m)) for t, m in sizes]
    for one in small:
        one.identity.choices["model"] = "DiT-S/8"
    outcome = documents(*small)["dit-s-8-activations-outgrow-parameters"]
    assert (outcome.configurations, outcome.value) == (1, pytest.approx(9.0))


def test_one_condition_of_several_suffices(tmp_path: Path) -> None:
    text = "- {id: a, metric: peak_bytes, where: {any_of: [{gpus: 2}, {nothing: 1}]}, at_least: 1}"
    (outcome,) = outcomes_of(tmp_path, text, record(), record(gpus=2))
    assert outcome.configurations == 1
    (outcome,) = outcomes_of(tmp_path, text.replace("gpus", "gpu_s"), record())
    assert outcome.remark == "gpu_s: no run has such a key"


def test_numbers_as_yaml_reads_them_and_as_one_writes_them(tmp_path: Path) -> None:
    one = record()
    one.numerics.parameters = 150_000_000
    where = "where: {parameters: {at_least: 1.4e8}}"
    (outcome,) = outcomes_of(
        tmp_path, f"- {{id: a, metric: peak_bytes, {where}, at_most: 1e9}}", one
    )
    assert outcome.verdict == "holds"
    (outcome,) = outcomes_of(
        tmp_path, "- {id: a, metric: peak_bytes, where: {gpus: {at_most: x}}, at_most: 1}", one
    )
    assert (outcome.verdict, outcome.remark) == ("not tested", "x: is not a number")
    with pytest.raises(UserError, match="use one of all, most, some"):
        outcomes_of(tmp_path, change("speed_percent", "at_most: 1", more=", configurations: few"))
