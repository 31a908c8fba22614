"""A run whose attempts are started one by one, as a launcher would, and that can be disturbed."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeper.config import config_id
from sweeper.failure import read_failures
from sweeper.place import Place
from sweeper.record import RECORD_FILE, STEPS_FILE, Identity, Record, read_record, write_identity

HERE = Path(__file__).parent


class Ranks:
    """The process that forks ranks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm_ranks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, order: dict[str, Any]) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Run:
    """One run, whose attempts are called for by number."""

    def __init__(self, ranks: Ranks, run_dir: Path, plain: dict[str, Any]) -> None:
        self.dir, self.config, self._ranks = run_dir, plain, ranks
        run_dir.mkdir()
        identity = Identity(sweep="s", run_id="r", config_id=config_id(plain))
        write_identity(run_dir, identity)

    def attempt(
        self, number: int, disturb: str = "", largest_file_bytes: int | None = None
    ) -> list[int]:
        """Run it to its end; returns the exit code of each rank."""
        world_size = self.config["gpus"]["count"]
        place = Place(self.dir, world_size=world_size, ranks_per_node=world_size, attempt=number)
        return self._ranks(
            {
                "environment": {**place.environment(), "SWEEPER_DISTURB": disturb},
                "config": self.config,
                "largest_file_bytes": largest_file_bytes,
            }
        )

    @property
    def record(self) -> Record:
        return read_record(self.dir / RECORD_FILE)

    @property
    def steps(self) -> list[dict[str, str]]:
        with (self.dir / STEPS_FILE).open() as file:
            return list(csv.DictReader(file))

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.steps]

    def stopped_at(self, attempt: int) -> list[int]:
        """The step after which each rank says it stopped."""
        files = sorted((self.dir / f"attempt{attempt}").glob("stopped.rank*"))
        return [int(path.read_text()) for path in files]

    def failures(self, attempt: int) -> list[str]:
        return [failure.message for failure in read_failures(self.dir / f"attempt{attempt}")]


MakeRun = Callable[..., Run]
