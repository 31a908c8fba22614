"""Real training as jobs of Slurm."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from slurm_sweep import TRAIN, SlurmSweep, wait_until

from sweeper.launch.slurm_note import SlurmNote
from sweeper.record import RECORD_FILE, Status, read_record, read_state


def losses(run_dir: Path) -> list[float]:
    with (run_dir / "steps.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_a_preempted_training_ends_as_if_it_had_not_been(sweep: SlurmSweep) -> None:
    """Of one rank and of two, twice each; one of the two is interrupted."""
    process = sweep.start(
        "-m", "hydra/launcher=slurm", "sweep.name=pre", "repeat=2", "gpus=1,2", "train.steps=150",
        "measure.warmup_steps=2", "measure.steps=2", "batch.size=16", "evaluate.samples=16",
        "tracker=none", program=TRAIN,
    )  # fmt: skip
    directory = sweep.cwd / "sweeps" / "pre"

    def under_way() -> list[Path]:
        states = ((path.parent, read_state(path.parent)) for path in directory.glob("*/state.json"))
        return [path for path, state in states if state is not None and (state.step or 0) >= 10]

    interrupted: dict[int, Path] = {}

    def interrupt() -> bool:
        for path in under_way():
            ranks = len(list((path / "attempt0").glob("rank*.out")))
            note = SlurmNote.read(path)
            if ranks not in interrupted and note is not None:
                sweep.cluster("scancel", "--signal=USR2", str(note.job))
                interrupted[ranks] = path
        return len(interrupted) == 2

    try:
        wait_until(interrupt, 120)
        output, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 0, output
    runs = [path.parent for path in directory.glob(f"*/{RECORD_FILE}")]
    records = {run: read_record(run / RECORD_FILE) for run in runs}
    assert [record.status for record in records.values()] == [Status.COMPLETED] * 4
    for ranks, path in interrupted.items():
        record = records[path]
        assert record.attempt == 1
        assert [end["error"] for end in record.attempts] == ["Preempted"]
        assert record.loss.optimizer_steps == 150
        (other,) = [
            run
            for run, twin in records.items()
            if run != path and twin.identity.config_id == record.identity.config_id
        ]
        assert records[other].attempt == 0
        assert len(losses(path)) == 150
        if ranks == 1:
            assert losses(path) == losses(other)
        else:
            assert losses(path) == pytest.approx(losses(other), rel=1e-5)
