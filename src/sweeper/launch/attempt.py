"""An attempt: one start of a run. What an earlier command left of the run is settled first."""

from __future__ import annotations

import contextlib
import re
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from omegaconf import OmegaConf

from sweeper.errors import UserError
from sweeper.failure import ENDED_FILE
from sweeper.launch.leftover import RANKS_FILE, Leftover
from sweeper.launch.runs import Run
from sweeper.launch.slurm_note import SLURM_FILE
from sweeper.place import Place
from sweeper.record import (
    CONFIG_FILE,
    RECORD_FILE,
    STATE_FILE,
    STEPS_FILE,
    RecordError,
    State,
    read_state,
    write_atomic,
    write_identity,
    write_state,
)

# A run on a machine that cannot be asked counts as alive for this long after its last heartbeat.
_FOREIGN_S = 600.0


@dataclass(eq=False)
class Attempt:
    """The next, or the still running, start of a run."""

    run: Run
    number: int
    leftover: Leftover | None = None  # alive, from an earlier command
    neighbours: list[str] = field(default_factory=list)
    job: str | None = None  # of a cluster, submitted by an earlier command and not over

    @property
    def dir(self) -> Path:
        return self.run.run_dir / f"attempt{self.number}"

    @property
    def return_file(self) -> Path:
        """Where rank 0 leaves what the task returned."""
        return self.dir / "return.pkl"

    def place(self) -> Place:
        """Of rank 0."""
        need = self.run.resources
        return Place(
            run_dir=self.run.run_dir,
            world_size=need.world_size,
            ranks_per_node=need.ranks_per_node,
            attempt=self.number,
            shares_node_with=tuple(self.neighbours),
        )

    def write_state(self, name: str) -> None:
        """Keep what the run itself said last; set only where the run is now."""
        state = State(state=name)
        with contextlib.suppress(RecordError):
            state = read_state(self.run.run_dir) or state
        state.state, state.attempt = name, self.number
        write_state(self.run.run_dir, state)


def attempts(run_dir: Path) -> list[int]:
    """Numbers of the run's attempts so far, ascending."""
    found = (re.fullmatch(r"attempt(\d+)", path.name) for path in run_dir.glob("attempt*"))
    return sorted(int(match[1]) for match in found if match)


def next_attempt(run: Run) -> Attempt:
    """Find the attempt that still runs, or number the next one and set the finished ones aside.

    Raises:
        UserError: the run may still be running on another machine.
    """
    recorded = (run.run_dir / RECORD_FILE).exists()
    if (run.run_dir / SLURM_FILE).exists() and not recorded:
        raise UserError(
            "hydra/launcher",
            f"{run.label} is a job of Slurm, which may still wait or run",
            "continue the sweep with hydra/launcher=slurm",
        )
    numbers = attempts(run.run_dir)
    if not numbers:
        (run.run_dir / RECORD_FILE).unlink(missing_ok=True)  # it was skipped before
        return Attempt(run, 0)
    last = Attempt(run, numbers[-1])
    if (run.run_dir / RECORD_FILE).exists():
        set_aside(last)
    elif not (last.dir / RANKS_FILE).exists():
        return last  # it was never started
    else:
        last.leftover = Leftover.read(last.dir)
        if last.leftover is None:
            _refuse_foreign(run.run_dir)
        elif last.leftover.alive:
            return last
    return Attempt(run, last.number + 1)


def set_aside(attempt: Attempt) -> None:
    """Move what the attempt left in the run's directory into its own."""
    for name, kept in ((RECORD_FILE, ENDED_FILE), (STEPS_FILE, STEPS_FILE)):
        with contextlib.suppress(FileNotFoundError):
            (attempt.run.run_dir / name).replace(attempt.dir / kept)
    (attempt.run.run_dir / STATE_FILE).unlink(missing_ok=True)


def _refuse_foreign(run_dir: Path) -> None:
    state = read_state(run_dir)
    if state is None or state.host in (None, socket.gethostname()) or state.state != "running":
        return
    heard = datetime.fromisoformat(state.heartbeat_at) if state.heartbeat_at else None
    if heard is not None and (datetime.now(UTC) - heard).total_seconds() < _FOREIGN_S:
        raise UserError(
            "sweep.name",
            f"{run_dir.name} runs on {state.host}, and was heard of at {state.heartbeat_at}",
            f"continue the sweep on {state.host}",
        )


def write_plan(attempt: Attempt) -> None:
    """Write who the run is, its frozen config, and that it waits."""
    run = attempt.run
    run.run_dir.mkdir(parents=True, exist_ok=True)
    write_identity(run.run_dir, run.identity)
    if run.plain:
        write_atomic(run.run_dir / CONFIG_FILE, OmegaConf.to_yaml(OmegaConf.create(run.plain)))
    write_state(run.run_dir, State(state="queued", attempt=attempt.number))
