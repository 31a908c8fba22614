"""Trackers for tests: one that writes down its calls, and ones that go wrong in a chosen call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sweeper.record import Identity, Status, to_plain
from sweeper.tracking.base import DegradedError


class Diary:
    """Appends each call to `diary.jsonl` in the run's directory."""

    def __init__(self, greeting: str = "") -> None:
        self.greeting = greeting

    def _note(self, *entry: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(to_plain(list(entry))) + "\n")

    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        self.path = run_dir / "diary.jsonl"
        self._note("start", identity, config, run_dir, self.greeting)

    def log(self, step: int, values: dict[str, float]) -> None:
        self._note("log", step, values)

    def summary(self, values: dict[str, Any]) -> None:
        self._note("summary", values)

    def finish(self, status: Status) -> None:
        self._note("finish", status)


class Misbehaving(Diary):
    """Does something bad in one call.

    Args:
        call: the call.
        how: raise, degrade, hang (with a helper in a session of its own), die or chat.
    """

    def __init__(self, call: str, how: str) -> None:
        super().__init__()
        self.call = call
        self.how = how

    def _note(self, *entry: Any) -> None:
        super()._note(*entry)
        if entry[0] != self.call:
            return
        if self.how == "raise":
            raise RuntimeError("no such luck\nand more of it")
        if self.how == "degrade":
            raise DegradedError("written to paper instead")
        if self.how == "die":
            os._exit(3)
        if self.how == "chat":
            print("hello", sys.stdin.read())
        if self.how == "hang":
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            while True:
                time.sleep(60)


def read_diary(run_dir: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (run_dir / "diary.jsonl").read_text().splitlines()]
