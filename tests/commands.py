"""Running the command as a user does, and reading what it left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from sweeper.record import RECORD_FILE, Record, read_record

ROOT = Path(__file__).parent.parent

# Variables of the machine or the person that must not reach a test.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "HYDRA_FULL_ERROR")

# Real training, but as little of it as the program allows.
SMALL = (
    "train.steps=6",
    "measure.warmup_steps=2",
    "measure.steps=2",
    "batch.size=8",
    "evaluate.samples=16",
    "tracker=none",
)

Train = Callable[..., subprocess.CompletedProcess[str]]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in FOREIGN and not k.startswith("SLURM_")}
    kept["PYTHONPATH"] = ""
    kept["COLUMNS"] = "160"
    kept["WANDB_MODE"] = "offline"
    return {**kept, **changes}


def records(directory: Path) -> list[Record]:
    """All records below `directory`, in the order of their overrides."""
    found = [read_record(path) for path in sorted(directory.rglob(RECORD_FILE))]
    return sorted(found, key=lambda record: record.identity.overrides)
