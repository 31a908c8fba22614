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


def test_a_preempted_training_goes_on_as_the_same_run(sweep: SlurmSweep) -> None:
    """Of two repeats, two ranks each, one is interrupted; the other shows what should come out."""
    process = sweep.start(
        "-m", "hydra/launcher=slurm", "sweep.name=pre", "repeat=2", "gpus=2", "train.steps=100",
        "measure.warmup_steps=2", "measure.steps=2", "batch.size=16", "evaluate.samples=16",
        "tracker=none", program=TRAIN,
    )  # fmt: skip
    directory = sweep.cwd / "sweeps" / "pre"

    def under_way() -> list[Path]:
        states = ((path.parent, read_state(path.parent)) for path in directory.glob("*/state.json"))
        return [path for path, state in states if state is not None and (state.step or 0) >= 10]

    try:
        wait_until(under_way, 120)
        chosen = under_way()[0]
        note = SlurmNote.read(chosen)
        assert note is not None
        sweep.cluster("scancel", "--signal=USR2", str(note.job))
        output, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 0, output
    runs = [path.parent for path in directory.glob(f"*/{RECORD_FILE}")]
    records = {run: read_record(run / RECORD_FILE) for run in runs}
    assert [record.status for record in records.values()] == [Status.COMPLETED] * 2
    (other,) = [run for run in runs if run != chosen]
    assert records[other].attempt == 0
    record = records[chosen]
    assert record.attempt == 1
    assert [end["error"] for end in record.attempts] == ["Preempted"]
    assert record.loss.optimizer_steps == 100
    assert losses(chosen) == losses(other)
