"""The loss verdict beside the figures: from curves, and from the record where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from analysis_records import plain, record, write_sweep

from analysis.baseline import match
from analysis.load import from_records, load
from analysis.parity import judge, read_losses
from analysis.study import Study
from analysis.tables import checkpointing
from sweeper.record import Record


def judged(study: Study, **base: str) -> list[Any]:
    return judge(study, match(study, base))["parity"].tolist()


def in_memory(*records: Record) -> Study:
    return Study(from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)]))


def with_curves(root: Path, curves: dict[str, list[float]], **numerics: Any) -> Study:
    records = [record(ckpt=ckpt) for ckpt in curves]
    for one in records:
        for key, value in numerics.items():
            setattr(one.numerics, key, value)
    sweep = write_sweep(root, records)
    for run_dir, losses in zip(sorted(sweep.iterdir()), curves.values(), strict=True):
        rows = "".join(f"{i},{loss!r}\n" for i, loss in enumerate(losses))
        (run_dir / "steps.csv").write_text("step,loss\n" + rows)
    return Study(load([sweep]))


def test_checkpointing_that_changes_the_loss_fails_and_its_repeat_passes() -> None:
    runs = [record(ckpt="off", loss=2.195, validation=None, repeat=0)]
    runs += [record(ckpt="on", loss=2.495, validation=None, repeat=0)]
    study = in_memory(*runs)
    found = judge(study, match(study, {"ckpt": "off"}))
    assert found["parity"].tolist() == [None, "different"]
    assert found["parity_difference"].iloc[1] == pytest.approx(0.300 / 2.195)  # 13.7 %
    twice = in_memory(
        record(accum=1, loss=2.195, validation=None),
        record(accum=2, loss=2.194, validation=None),
    )
    twice.frame["numerics.compute_dtype"] = "bfloat16"  # tolerance 0.01
    assert judged(twice, accum="1") == [None, "rounding"]


def test_curves_are_compared_step_by_step(tmp_path: Path) -> None:
    equal_at_the_end = {"off": [2.0, 1.5, 1.0], "on": [2.0, 1.8, 1.0]}
    study = with_curves(tmp_path / "s", equal_at_the_end)
    found = judge(study, match(study, {"ckpt": "off"}))
    assert found["parity"].tolist() == [None, "different"]
    assert found["parity_difference"].iloc[1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("second", "dtype", "verdict"),
    [
        (1.5, "float32", "exact"),
        (1.5 * (1 + 1e-4), "float32", "rounding"),
        (1.5 * (1 + 5e-3), "float32", "different"),
        (1.5 * (1 + 5e-3), "bfloat16", "rounding"),
        (1.5 * (1 + 2e-2), "bfloat16", "different"),
    ],
)
def test_the_tolerance_is_that_of_the_coarser_dtype(
    tmp_path: Path, second: float, dtype: str, verdict: str
) -> None:
    curves = {"off": [2.0, 1.5], "on": [2.0, second]}
    study = with_curves(tmp_path / "s", curves, compute_dtype=dtype)
    assert judged(study, ckpt="off") == [None, verdict]


def test_of_several_repeats_the_worst_counts() -> None:
    study = in_memory(
        record(accum=1, repeat=0, loss=1.0),
        record(accum=1, repeat=1, loss=1.0),
        record(accum=2, repeat=0, loss=1.0),
        record(accum=2, repeat=1, loss=1.5),
    )
    assert judged(study, accum="1") == [None, "different"]


def test_an_unreadable_series_is_no_series(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("step,loss\n0,1.0\n1,\nx,y\n")
    assert read_losses(str(tmp_path)) == {}
    (tmp_path / "steps.csv").write_text("step,loss\n0,1.0\n1,\n2,3.0\n")
    assert read_losses(str(tmp_path)) == {0: 1.0, 2: 3.0}
    assert read_losses(str(tmp_path / "nowhere")) == {}


def test_the_table_says_why_losses_cannot_be_equal() -> None:
    off, on = record(ckpt="off", loss=1.0), record(ckpt="on", loss=1.2)
    off.numerics.parity = on.numerics.parity = "rng"
    table = checkpointing.build(in_memory(off, on))
    assert table is not None
    assert table.frame["parity"].tolist() == ["different"]
    assert "dropout" in table.notes[0]
