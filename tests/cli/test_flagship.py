"""The README's command, run once; what a user may rely on in what it leaves."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import flagship_by_hand
import pytest
from commands import ROOT, environment, records

from sweeper.record import Record, Status

GRID = ("-m", "precision=fp32,amp", "ckpt=on,off", "gpus=1,4,8")

# The loss on held-out images must fall at least this much over the 40 steps; it falls by 0.7.
MARGIN = 0.3


class Sweep:
    def __init__(self, directory: Path, stdout: str) -> None:
        self.dir, self.stdout = directory, stdout
        self.runs = {tuple(sorted(r.identity.choices.items())): r for r in records(directory)}

    def run(self, **choices: str) -> Record:
        (found,) = [
            record
            for record in self.runs.values()
            if all(record.identity.choices[group] == option for group, option in choices.items())
        ]
        return found

    def run_dir(self, record: Record) -> Path:
        (found,) = self.dir.glob(f"*-{record.identity.run_id}")
        return found

    def losses(self, **choices: str) -> list[float]:
        with (self.run_dir(self.run(**choices)) / "steps.csv").open() as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("flagship")
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *GRID],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (directory / "sweeps").iterdir()
    return Sweep(found, done.stdout)


def relative(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) / abs(x) for x, y in zip(a, b, strict=True))


def test_twelve_runs_complete(sweep: Sweep) -> None:
    assert len(sweep.runs) == 12
    assert {record.status for record in sweep.runs.values()} == {Status.COMPLETED}


def test_every_run_learns(sweep: Sweep) -> None:
    for record in sweep.runs.values():
        loss = record.loss
        assert loss.validation_first is not None
        assert loss.validation_last is not None
        assert loss.validation_last < loss.validation_first - MARGIN
        assert loss.optimizer_steps == 40


def test_checkpointing_changes_no_loss(sweep: Sweep) -> None:
    for precision in ("fp32", "amp"):
        for gpus in ("1", "4", "8"):
            on = sweep.losses(precision=precision, gpus=gpus, ckpt="on")
            off = sweep.losses(precision=precision, gpus=gpus, ckpt="off")
            assert on == off


@pytest.mark.parametrize("gpus", ["4", "8"])
def test_more_ranks_give_the_same_losses(sweep: Sweep, gpus: str) -> None:
    one = sweep.losses(precision="fp32", ckpt="off", gpus="1")
    many = sweep.losses(precision="fp32", ckpt="off", gpus=gpus)
    assert relative(one[:20], many[:20]) < 1e-5


def test_checkpointing_and_mixed_precision_save_memory(sweep: Sweep) -> None:
    def peak(**choices: str) -> int:
        found = sweep.run(gpus="1", **choices).memory.warm.peak_tensor_bytes
        assert found is not None
        return found

    assert peak(precision="fp32", ckpt="on") < 0.6 * peak(precision="fp32", ckpt="off")
    assert peak(precision="amp", ckpt="off") < 0.85 * peak(precision="fp32", ckpt="off")


def test_records_say_what_was_done(sweep: Sweep) -> None:
    record = sweep.run(precision="amp", ckpt="on", gpus="4")
    assert record.numerics.compute_dtype == "bfloat16"
    assert record.numerics.parameter_dtype == "float32"
    assert record.numerics.grad_scaler is False
    assert record.numerics.checkpointed_blocks == 4
    assert record.numerics.parity == "exact"
    assert record.numerics.micro_batch == 16
    assert record.hardware.world_size == 4
    assert record.hardware.backend == "gloo"
    assert record.hardware.device == "cpu"
    assert record.time.measured_steps is not None
    assert record.time.measured_steps >= 20
    assert record.time.samples_per_s == pytest.approx(64 / (record.time.step_time_s or 0))
    assert record.software.torch is not None
    assert record.identity.command.startswith("python train.py precision=amp ckpt=on gpus=4")
    assert record.config["batch"]["size"] == 64


def test_memory_parts_add_up_to_the_peak(sweep: Sweep) -> None:
    for record in sweep.runs.values():
        parts = record.memory.parts
        named = (
            parts.parameters_bytes,
            parts.gradients_bytes,
            parts.optimizer_bytes,
            parts.ema_bytes,
            parts.buckets_bytes,
            parts.activations_bytes,
            parts.data_bytes,
            parts.remainder_bytes,
        )
        assert sum(part or 0 for part in named) == record.memory.warm.peak_tensor_bytes
        assert parts.parameters_bytes
        assert parts.optimizer_bytes


def test_a_run_directory_holds_everything(sweep: Sweep) -> None:
    run_dir = sweep.run_dir(sweep.run(precision="fp32", ckpt="off", gpus="4"))
    for name in ("config.yaml", "record.json", "run.json", "steps.csv", ".hydra/overrides.yaml"):
        assert (run_dir / name).is_file(), name
    assert len(list((run_dir / "attempt0").glob("rank*.err"))) == 4
    assert len(list((run_dir / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_the_comparison_is_printed(sweep: Sweep) -> None:
    assert f"continue it with: {sys.executable} {ROOT / 'train.py'} -m precision" in sweep.stdout
    assert "Baseline: precision=fp32 ckpt=off" in sweep.stdout
    assert "processes on a CPU" in sweep.stdout
    table = sweep.stdout[sweep.stdout.index("Comparison of runs") :]
    rows = [line.split() for line in table.splitlines() if line.startswith(("fp32", "amp"))]
    assert len(rows) == 12


@pytest.mark.parametrize("table", flagship_by_hand.TABLES)
def test_every_figure_of_a_table_is_what_the_records_give_by_hand(sweep: Sweep, table: str) -> None:
    keys, calculate = flagship_by_hand.TABLES[table]
    expected = calculate(flagship_by_hand.read_runs(sweep.dir))
    with (sweep.dir / "tables" / f"{table}.csv").open() as file:
        rows = {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}
    assert rows.keys() == expected.keys()
    for name, figures in expected.items():
        for column, value in figures.items():
            found = float(rows[name][column])
            assert found == pytest.approx(value, rel=1e-9, abs=1e-9), (name, column)


def test_tables_come_again_from_the_records_alone(sweep: Sweep) -> None:
    written = {path.name: path.read_bytes() for path in (sweep.dir / "tables").iterdir()}
    assert {"runs.md", "runs.csv"} <= written.keys()
    for name in written:
        (sweep.dir / "tables" / name).unlink()
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "report", str(sweep.dir)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    again = {path.name: path.read_bytes() for path in (sweep.dir / "tables").iterdir()}
    assert again == written
