"""`stop.json` in an attempt's directory: a word to its tasks, on whatever node, to end their ranks.

The command that follows the sweep writes it; where a run hangs, so does the task of its rank 0,
whether or not anyone follows.
"""

from __future__ import annotations

import json
from pathlib import Path

from sweeper.record import write_atomic

STOP_FILE = "stop.json"


def write_stop(attempt_dir: Path, reason: str) -> None:
    """Ask the attempt's tasks to end their ranks; the first reason given stays."""
    if read_stop(attempt_dir) is None:
        write_atomic(attempt_dir / STOP_FILE, json.dumps({"reason": reason}) + "\n")


def read_stop(attempt_dir: Path) -> str | None:
    """Why the attempt was asked to end, if it was."""
    try:
        return str(json.loads((attempt_dir / STOP_FILE).read_text("utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
