"""Running the sample application as a person does, and looking for what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil

from sweeper.record import RECORD_FILE, Record, State, read_identity, read_record, read_state

APP = Path(__file__).parent / "app" / "app.py"

# Of schedulers and launchers that the tests themselves may run under.
FOREIGN = ("SLURM_", "SUBMITIT_", "SWEEPER_", "TORCHELASTIC_")


class Sweep:
    """The application's sweep in a directory; every process it starts carries a mark."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.dir = cwd / "sweep"
        self._mark = uuid.uuid4().hex

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        for name in ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
            kept.pop(name, None)
        return {**kept, "TEST_MARK": self._mark, **changes}

    def start(self, *arguments: str, program: Path = APP, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(program), *arguments],
            cwd=self.cwd,
            env=self.environment(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(
        self, *arguments: str, program: Path = APP, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, program=program, **changes)
        try:
            output, _ = process.communicate(timeout=300)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def records(self) -> dict[str, Record]:
        """By variant, e.g. `do=ok+seed=0+ranks=1`."""
        found = [read_record(path) for path in self.dir.glob(f"*/{RECORD_FILE}")]
        return {record.identity.variant: record for record in found}

    def run_dirs(self) -> dict[str, Path]:
        paths = [path.parent for path in self.dir.glob("*/run.json")]
        return {read_identity(path).variant: path for path in paths}

    def states(self) -> dict[str, State | None]:
        return {variant: read_state(path) for variant, path in self.run_dirs().items()}

    def starts(self) -> list[dict[str, object]]:
        """What each rank that was ever started noted about itself."""
        notes = sorted(self.dir.glob("*/attempt*/started.rank*"))
        return [json.loads(path.read_text()) for path in notes]

    def processes(self) -> list[psutil.Process]:
        """Processes that still live, of all that these tests have started here."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("TEST_MARK") == self._mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def assert_nothing_left(self, within_s: float = 15) -> None:
        wait_until(lambda: not self.processes(), within_s)

    def end(self) -> None:
        for process in self.processes():
            process.kill()


def wait_until(condition: Callable[[], object], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
