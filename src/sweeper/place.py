"""Where a process stands: which run, which rank of it, which attempt.

The launcher sets the environment of each rank; everything below the launcher reads it here and
nowhere else. Names of our own are used, so that RANK or MASTER_PORT exported by the user or left by
a scheduler cannot disturb a run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# In the environment of each rank, and of what it starts: by it a failed job's leftovers are found.
JOB_VARIABLE = "SUBMITIT_SLOTS_JOB_ID"


def log_files(attempt_dir: Path, rank: int) -> tuple[Path, Path]:
    """A rank's output and errors."""
    return attempt_dir / f"rank{rank}.out", attempt_dir / f"rank{rank}.err"


@dataclass(frozen=True)
class Place:
    """One rank of one attempt of one run."""

    run_dir: Path
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    ranks_per_node: int = 1
    attempt: int = 0
    shares_node_with: tuple[str, ...] = ()  # run ids that ran on the same node at the same time

    @property
    def attempt_dir(self) -> Path:
        """Files of this attempt alone: rank logs, failures, the rendezvous."""
        return self.run_dir / f"attempt{self.attempt}"

    def log_files(self) -> tuple[Path, Path]:
        """Where the rank's output and errors go, where a launcher keeps them."""
        return log_files(self.attempt_dir, self.rank)

    @property
    def neighbours_file(self) -> Path:
        """Run ids, one a line, that the launcher adds while this run shares its node."""
        return self.attempt_dir / "shared.txt"

    def neighbours(self) -> list[str]:
        """Ids of all runs that shared the node with this one, at its start or since."""
        try:
            since = self.neighbours_file.read_text("utf-8").split()
        except FileNotFoundError:
            since = []
        return list(dict.fromkeys([*self.shares_node_with, *since]))

    def environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads back."""
        return {
            "SWEEPER_RUN_DIR": str(self.run_dir),
            "SWEEPER_RANK": str(self.rank),
            "SWEEPER_WORLD_SIZE": str(self.world_size),
            "SWEEPER_LOCAL_RANK": str(self.local_rank),
            "SWEEPER_RANKS_PER_NODE": str(self.ranks_per_node),
            "SWEEPER_ATTEMPT": str(self.attempt),
            "SWEEPER_SHARES_NODE_WITH": ",".join(self.shares_node_with),
        }

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Place:
        return cls(
            run_dir=Path(environ["SWEEPER_RUN_DIR"]),
            rank=int(environ["SWEEPER_RANK"]),
            world_size=int(environ["SWEEPER_WORLD_SIZE"]),
            local_rank=int(environ["SWEEPER_LOCAL_RANK"]),
            ranks_per_node=int(environ["SWEEPER_RANKS_PER_NODE"]),
            attempt=int(environ["SWEEPER_ATTEMPT"]),
            shares_node_with=tuple(
                filter(None, environ.get("SWEEPER_SHARES_NODE_WITH", "").split(","))
            ),
        )
