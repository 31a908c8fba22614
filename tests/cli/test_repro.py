"""`repro=strict`: a run repeats bit for bit, says so, and leaves the process as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from commands import SMALL, Train, records

from sweeper.device import CUBLAS_VARIABLE, reproducible
from sweeper.record import STEPS_FILE


def series(run_dir: Path) -> list[str]:
    """Loss and learning rate of each step, as written; the times beside them differ."""
    rows = (run_dir / STEPS_FILE).read_text().splitlines()[1:]
    return [",".join(row.split(",")[:3]) for row in rows]


def test_strict_runs_are_equal_bit_for_bit_and_recorded(train: Train, tmp_path: Path) -> None:
    done = train("-m", "repro=strict", "repeat=2", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = records(tmp_path)
    assert first.numerics.deterministic is second.numerics.deterministic is True
    assert first.config["repro"] == "strict"
    assert first.loss.validation_last == second.loss.validation_last
    one, other = (series(path.parent) for path in sorted(tmp_path.rglob(STEPS_FILE)))
    assert len(one) == 6
    assert one == other


def test_it_is_an_axis_whose_cost_the_comparison_shows(train: Train, tmp_path: Path) -> None:
    done = train("-m", "repro=fast,strict", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    fast, strict = records(tmp_path)
    assert (fast.numerics.deterministic, strict.numerics.deterministic) == (False, True)
    assert fast.identity.config_id != strict.identity.config_id
    assert "repro" in done.stdout


def test_an_unknown_value_is_refused(train: Train) -> None:
    done = train("repro=exact", *SMALL)
    assert done.returncode == 2
    assert "repro" in done.stderr
    assert "fast, strict" in done.stderr


@pytest.mark.parametrize("before", [None, ":0:0", ":16:8"])
def test_everything_is_put_back(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv(CUBLAS_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(CUBLAS_VARIABLE, before)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with reproducible("strict"):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert os.environ[CUBLAS_VARIABLE] in (":4096:8", ":16:8")
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.benchmark
    assert os.environ.get(CUBLAS_VARIABLE) == before


def test_what_has_no_deterministic_algorithm_fails() -> None:
    # On the CPU torch has few such operations; this one is its documented example.
    x = torch.zeros(4)
    index, values = torch.tensor([0, 0]), torch.tensor([1.0, 2.0])
    with reproducible("fast"):
        x.clone().put_(index, values)
    with reproducible("strict"), pytest.raises(RuntimeError, match="deterministic"):
        x.clone().put_(index, values)
