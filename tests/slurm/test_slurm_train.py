"""Real training as jobs of Slurm."""

from __future__ import annotations

import csv
from pathlib import Path

from slurm_sweep import TRAIN, SlurmSweep, wait_until

from sweeper.launch.slurm_note import SlurmNote
from sweeper.record import RECORD_FILE, Status, read_record, read_state


def losses(run_dir: Path) -> list[float]:
    with (run_dir / "steps.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_a_preempted_training_ends_as_if_it_had_not_been(sweep: SlurmSweep) -> None:
    """Of two repeats, two ranks each, one is interrupted."""
    process = sweep.start(
        "-m", "hydra/launcher=slurm", "sweep.name=pre", "repeat=2", "gpus=2", "train.steps=300",
        "measure.warmup_steps=2", "measure.steps=2", "batch.size=16", "evaluate.samples=16",
        "tracker=none", "hydra.launcher.constraint=n1", program=TRAIN,
    )  # fmt: skip
    directory = sweep.cwd / "sweeps" / "pre"

    def reached() -> Path | None:
        for path in directory.glob("*/state.json"):
            state = read_state(path.parent)
            if state is not None and (state.step or 0) >= 20:
                return path.parent
        return None

    try:
        wait_until(reached, 90)
        chosen = reached()
        assert chosen is not None
        note = SlurmNote.read(chosen)
        assert note is not None
        sweep.cluster("scancel", "--signal=USR2", str(note.job))
        output, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 0, output
    runs = [path.parent for path in directory.glob(f"*/{RECORD_FILE}")]
    assert len(runs) == 2
    records = {run: read_record(run / RECORD_FILE) for run in runs}
    assert {record.status for record in records.values()} == {Status.COMPLETED}
    assert records[chosen].attempt == 1
    assert len(records[chosen].attempts) == 1
    assert records[chosen].attempts[0]["error"] == "Preempted"
    assert records[chosen].loss.optimizer_steps == 300
    (other,) = [run for run in runs if run != chosen]
    assert records[other].attempt == 0
    assert len(losses(chosen)) == 300
    assert losses(chosen) == losses(other)
