"""A sweep whose run is interrupted from outside: the same command ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from single_run import MakeRun

from sweeper.record import DRAFT_FILE, RECORD_FILE, Status, read_record, read_state

ROOT = Path(__file__).parent.parent.parent

OVERRIDES = (
    "model.depth=1",
    "train.steps=150",
    "train.ema_decay=0.9",
    "train.max_grad_norm=1.0",
    "measure.warmup_steps=2",
    "measure.steps=2",
    "batch.size=8",
    "evaluate.samples=16",
    "lr=cosine",
    "hardware.threads=1",
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), "sweep.name=s", "tracker=none", *arguments]


def signal_once_it_trains(sweep_dir: Path, process: subprocess.Popen[str]) -> None:
    """Send the warning to the run's process when it has begun its measured window."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for path in sweep_dir.glob(f"*/attempt0/{DRAFT_FILE}"):
            state = read_state(path.parent.parent)
            # The draft is written anew after warm-up.
            if state is not None and json.loads(path.read_text())["phase"] == "warmup":
                psutil.Process(state.pid).send_signal(signal.SIGUSR2)
                return
        time.sleep(0.01)
    raise AssertionError("the run was not seen training")


def test_the_same_command_continues_an_interrupted_run(tmp_path: Path, make_run: MakeRun) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    process = subprocess.Popen(
        command(*OVERRIDES),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        signal_once_it_trains(tmp_path / "sweeps" / "s", process)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    subprocess.run(
        command(*OVERRIDES), cwd=tmp_path, env=environment, timeout=120, capture_output=True
    )

    (path,) = (tmp_path / "sweeps" / "s").glob(f"*/{RECORD_FILE}")
    record = read_record(path)
    assert record.status is Status.COMPLETED, output
    assert record.loss.optimizer_steps == 150
    assert record.attempt == 1
    assert [end["attempt"] for end in record.attempts] == [0]
    assert "preempted at step" in record.attempts[0]["message"]
    assert not (path.parent / "snapshot.pt").exists()

    whole = make_run(*OVERRIDES, "optim._target_=torch.optim.AdamW")
    assert whole.attempt(0) == [0]
    for name in ("train_first", "train_last", "validation_first", "validation_last"):
        assert getattr(record.loss, name) == getattr(whole.record.loss, name), name
    losses = (path.parent / "steps.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in losses[1:]] == whole.column("loss")
