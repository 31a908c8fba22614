"""`slurm.json` in a run's directory: which job of Slurm the run is, written before it exists.

It is also the fence between jobs: ranks whose job is not the one named here end themselves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeper.record import write_atomic

SLURM_FILE = "slurm.json"


@dataclass(kw_only=True)
class SlurmNote:
    name: str  # of the array, as squeue shows it; no two are the same
    index: int  # in the array
    base: int  # number of the job's first attempt; a requeue adds one
    folder: str  # of the sweep's pickles and job logs
    job: str | None = None  # 123_4 or 123; None until sbatch has answered

    @property
    def submission(self) -> str:
        return f"{self.name}.{self.index}"

    def write(self, run_dir: Path) -> None:
        write_atomic(run_dir / SLURM_FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, run_dir: Path) -> SlurmNote | None:
        """None where there is none, or it cannot be read."""
        try:
            return cls(**json.loads((run_dir / SLURM_FILE).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @staticmethod
    def remove(run_dir: Path) -> None:
        (run_dir / SLURM_FILE).unlink(missing_ok=True)
