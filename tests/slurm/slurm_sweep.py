"""Running the sample application on the tests' cluster, and looking at what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.slurm_cluster import Cluster

from sweeper.launch.slurm_note import SlurmNote
from sweeper.record import RECORD_FILE, Record, State, read_record, read_state

HERE = Path(__file__).parent
APP = HERE / "app" / "app.py"
TRAIN = HERE.parent.parent / "train.py"

FOREIGN = ("SLURM_", "SBATCH_", "SRUN_", "SUBMITIT_", "SWEEPER_", "TORCHELASTIC_")


class SlurmSweep:
    """The application's sweeps in a directory."""

    def __init__(self, cluster: Cluster, cwd: Path) -> None:
        self.cluster = cluster
        self.cwd = cwd
        self.dir = cwd / "sweep"

    def start(self, *arguments: str, program: Path = APP) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
            kept.pop(name, None)
        return subprocess.Popen(
            [sys.executable, str(program), *arguments],
            cwd=self.cwd,
            env={**kept, **self.cluster.environment, "WANDB_MODE": "offline"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(
        self, *arguments: str, program: Path = APP, timeout_s: float = 150
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, program=program)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"it did not end:\n{output}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def run_dirs(self) -> dict[str, Path]:
        """By what the run does: `ok`, `sleep`; with its seed where that is not 0: `sleep1`."""
        found = {}
        for path in self.dir.glob("*/run.json"):
            do, _, seed = json.loads(path.read_text())["variant"].split("+")
            number = seed.removeprefix("seed=")
            found[do.removeprefix("do=") + (number if number != "0" else "")] = path.parent
        return found

    def records(self) -> dict[str, Record]:
        paths = self.run_dirs().items()
        return {
            name: read_record(p / RECORD_FILE) for name, p in paths if (p / RECORD_FILE).exists()
        }

    def starts(self, name: str | None = None) -> list[dict[str, Any]]:
        """What each rank that was ever started noted about itself."""
        below = self.run_dirs()[name] if name else self.dir
        notes = sorted(below.rglob("started.rank*"))
        return [json.loads(path.read_text()) for path in notes]

    def job(self, name: str) -> str:
        """The id of the run's job."""
        note = SlurmNote.read(self.run_dirs()[name])
        assert note is not None
        assert note.job is not None
        return note.job

    def wait_for_start(self, name: str, within_s: float = 60) -> None:
        wait_until(lambda: name in self.run_dirs() and self.starts(name), within_s)

    def state(self, name: str) -> State | None:
        return read_state(self.run_dirs()[name])


def wait_until(condition: Callable[[], object], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
