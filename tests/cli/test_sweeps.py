"""Whole sweeps that others have seen go wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, SMALL, Train, environment, records

from sweeper.record import Status


def test_two_sweeps_at_once_meet_in_directories_and_on_ports_of_their_own(tmp_path: Path) -> None:
    """Started in the same second, by a person whose usual port is exported, and taken."""
    command = [sys.executable, str(ROOT / "train.py"), "gpus=2", *SMALL]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        both = [
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(taken.getsockname()[1])),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(2)
        ]
        outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    sweeps = list((tmp_path / "sweeps").iterdir())
    assert len(sweeps) == 2
    assert [len(records(sweep)) for sweep in sweeps] == [1, 1]
    first, second = records(tmp_path)
    assert first.identity.config_id == second.identity.config_id
    assert first.hardware.world_size == second.hardware.world_size == 2
    assert first.loss == second.loss
    assert len(list((tmp_path / "sweeps").rglob("rank*.err"))) == 4


def test_a_run_out_of_memory_between_two_others(train: Train, tmp_path: Path) -> None:
    small = [word for word in SMALL if not word.startswith("batch.size")]
    done = train(
        "-m", "batch.size=8,65536,16", "hardware.memory_limit_gib=0.3",
        "hydra.launcher.order=given", *small,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr  # out of memory is a result
    before, oom, after = sorted(records(tmp_path), key=lambda record: record.started_at or "")
    assert [r.status for r in (before, oom, after)] == [
        Status.COMPLETED,
        Status.OOM,
        Status.COMPLETED,
    ]
    assert oom.error is not None
    assert (oom.error.bytes_requested or 0) > 2**20
    assert oom.phase in ("setup", "warmup")
    assert "oom " in done.stdout
    # What came before leaves nothing behind: alone, the third run's peak is the same byte for byte.
    alone = train("batch.size=16", "hardware.memory_limit_gib=0.3", "sweep.name=alone", *small)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    (again,) = records(tmp_path / "sweeps" / "alone")
    assert again.memory.warm.peak_tensor_bytes == after.memory.warm.peak_tensor_bytes is not None


def test_cheap_and_informative_runs_come_first(train: Train, tmp_path: Path) -> None:
    done = train("-m", "gpus=2,1", "ckpt=on,off", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    started = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("started")]
    assert started[0] == "gpus=1+ckpt=off"  # the baseline
    assert started[1] == "gpus=1+ckpt=on"
    assert set(started[2:]) == {"gpus=2+ckpt=on", "gpus=2+ckpt=off"}


def test_a_sweeper_that_searches_gets_the_losses(train: Train, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    done = train(
        "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2",
        "hydra.sweeper.sampler.seed=1", "optim.lr=interval(0.0001,0.01)", *SMALL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (sweep,) = (tmp_path / "sweeps").iterdir()  # two batches of jobs, one sweep
    losses = [record.loss.validation_last for record in records(sweep)]
    assert len(losses) == 4
    best = min(loss for loss in losses if loss is not None)
    assert f"Best value: {best}" in done.stdout + done.stderr
    assert done.stdout.count("continue it with:") == 1
