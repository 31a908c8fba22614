"""One task of a Slurm job: the process that starts a rank of the run, and follows it to its end.

It is what submitit calls on the node. The rank is a process of its own, so that whatever happens to
it is noted (`attempt<N>/exit.rank<k>.json`), and so that signals reach it in good order:

    SIGUSR2   (time limit or preemption ahead) save yourself; then the job is queued again
    SIGTERM   (the job is about to end) show your Python stacks, save yourself; Slurm decides
    stop.json (the command that follows the sweep, or rank 0's task where the run hangs) end now

A task also ends its rank when the run has been started again elsewhere: see `superseded`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import submitit

from sweeper.failure import failure_file
from sweeper.launch import slurm_requeue as requeue
from sweeper.launch.environment import thread_variables
from sweeper.launch.hang import HangWatch
from sweeper.launch.job_end import OWN_END_S, TERM_TO_KILL_S
from sweeper.launch.oom import OomWatch
from sweeper.launch.processes import RANK_BOOT, STACK_SIGNAL
from sweeper.launch.rank import to_argument
from sweeper.launch.slurm_note import SlurmNote
from sweeper.launch.slurm_stop import read_stop, write_stop
from sweeper.place import JOB_VARIABLE, Place, log_files
from sweeper.record import RECORD_FILE, now, write_atomic

CHECK_S = 1.0

_SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGCHLD)


def exit_file(attempt_dir: Path, rank: int) -> Path:
    return attempt_dir / f"exit.rank{rank}.json"


@dataclass(kw_only=True)
class SlurmTask:
    """Pickled for each run; called in each of its tasks.

    Args:
        run_dir: of the run.
        submission: of the job, as its note names it.
        base: number of its first attempt.
        folder: with the pickle of what the rank calls.
        ranks_per_node: as many on each node.
        cwd, argv, sys_path: of the command.
        env: more environment variables of the rank.
        timeout_min: of one attempt.
        hang_timeout_min: longest time without a new step or phase, of a run that keeps its state.
        max_requeues: of the job.
    """

    run_dir: Path
    submission: str
    base: int
    folder: Path
    ranks_per_node: int
    cwd: str
    argv: Sequence[str]
    sys_path: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_min: float | None = None
    hang_timeout_min: float | None = None
    max_requeues: int = 0

    def __call__(self) -> None:
        """Never returns: submitit would write down a result that nobody reads."""
        raise SystemExit(_Guardian(self).run())

    def place(self) -> Place:
        """This task's, from what Slurm says of it."""
        slurm = submitit.JobEnvironment()
        return Place(
            run_dir=self.run_dir,
            rank=slurm.global_rank,
            world_size=slurm.num_tasks,
            local_rank=slurm.local_rank,
            ranks_per_node=self.ranks_per_node,
            attempt=self.base + restarts(),
        )


def restarts() -> int:
    """How often Slurm has queued this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


class _Guardian:
    def __init__(self, task: SlurmTask) -> None:
        self._task = task
        self._place = task.place()
        self._dir = self._place.attempt_dir
        self._saves = False  # the rank has been asked to save itself,
        self._requeues = False  # and the job is then to be queued again
        self._stops: str | None = None  # why the rank is made to end
        self._wakeup = self._handle_signals()
        self._started = time.monotonic()
        limit_min = task.hang_timeout_min if self._place.rank == 0 else None
        self._hang = HangWatch(task.run_dir, limit_min)

    def _handle_signals(self) -> int:
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return reader

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR2:
            self._saves = self._requeues = True
        elif number == signal.SIGTERM:
            if not self._saves:
                self._requeues = False
            self._saves = True
            self._tell(STACK_SIGNAL)

    def run(self) -> int:
        """Returns the exit code of the task; any but 0 ends the other tasks of the job."""
        self._rank: subprocess.Popen[bytes] | None = None
        self._dir.mkdir(parents=True, exist_ok=True)
        if self._over():
            return 0
        if self._place.rank == 0:
            requeue.settle_earlier(self._place)
            requeue.note_start(self._place, self._task.submission)
        if self._over():
            return 0
        oom = OomWatch()
        self._rank = self._start()
        code = self._follow(self._rank)
        if code is None:
            return 0
        sent = self._stops is not None
        killed = code == -signal.SIGKILL and not sent
        note = {"rank": self._place.rank, "code": code, "at": now(), "sent": sent}
        note["oom"] = killed and oom.was_it()
        preempted = self._is_preempted()
        write_atomic(exit_file(self._dir, self._place.rank), json.dumps(note) + "\n")
        if preempted and self._place.rank == 0:
            return requeue.end_preempted(
                self._place,
                self._task.max_requeues,
                self._requeues,
                limit_min=self._near_limit(),
            )
        if preempted:
            self._wait_for_rank_0()
            return 0
        if code != 0 and not sent:
            time.sleep(OWN_END_S)  # the others may still say why themselves
        return abs(code)

    def _start(self) -> subprocess.Popen[bytes]:
        place, task = self._place, self._task
        slurm = submitit.JobEnvironment()
        threads = int(os.environ.get("SLURM_CPUS_PER_TASK") or 1)
        output, errors = log_files(self._dir, place.rank)
        spec = {
            "rank": place.rank,
            "folder": str(task.folder),
            "cwd": task.cwd,
            "argv": list(task.argv),
            "sys_path": list(task.sys_path),
            "stdout": str(output),
            "stderr": str(errors),
            "cores": [],  # Slurm binds
            "threads": threads,
            "patient": True,
        }
        env = {
            **os.environ,
            **thread_variables(threads),
            "SUBMITIT_EXECUTOR": "slots",
            JOB_VARIABLE: task.submission,
            "SUBMITIT_SLOTS_NTASKS": str(place.world_size),
            "SUBMITIT_SLOTS_JOB_NUM_NODES": str(slurm.num_nodes),
            "SUBMITIT_SLOTS_NODEID": str(slurm.node),
            "SUBMITIT_SLOTS_GLOBALID": str(place.rank),
            "SUBMITIT_SLOTS_LOCALID": str(place.local_rank),
            **place.environment(),
            **task.env,
        }
        # Ignored until the run itself is ready for it; an ignored signal stays so across exec.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        try:
            with output.open("ab") as out, errors.open("ab") as err:
                return subprocess.Popen(
                    [sys.executable, "-c", RANK_BOOT, to_argument(spec)],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        finally:
            signal.signal(signal.SIGUSR2, self._on_signal)

    def _follow(self, rank: subprocess.Popen[bytes]) -> int | None:
        """The rank's exit code (negative = signal); None if it was ended as superseded."""
        kill_at: float | None = None
        while (code := rank.poll()) is None:
            if self.superseded():
                self._tell(signal.SIGKILL)
                rank.wait()
                self._kill_rest()
                return None
            if self._stops is None and self._hang.hangs():  # whether or not a command follows it
                write_stop(self._dir, "hang")
            if self._stops is None and (reason := read_stop(self._dir)) is not None:
                self._stops = reason
                self._tell(STACK_SIGNAL)
                time.sleep(0.5)
                self._tell(signal.SIGINT)
                kill_at = time.monotonic() + TERM_TO_KILL_S
            elif kill_at is not None and time.monotonic() >= kill_at:
                self._tell(signal.SIGKILL)
            elif self._saves:
                self._tell(signal.SIGUSR2)  # again and again: it may not have been ready
            self._sleep()
        self._kill_rest()
        return code

    def _sleep(self) -> None:
        """Until a signal comes, but not for long."""
        select.select([self._wakeup], [], [], CHECK_S)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakeup, 512):
                pass

    def _tell(self, number: signal.Signals) -> None:
        if self._rank is not None and self._rank.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rank.pid, number)

    def _kill_rest(self) -> None:
        """What the rank left behind in its process group."""
        assert self._rank is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._rank.pid, signal.SIGKILL)

    def _over(self) -> bool:
        return self.superseded() or (self._task.run_dir / RECORD_FILE).exists()

    def superseded(self) -> bool:
        """Whether a later attempt of the run exists, or the run has become another job's.

        Slurm starts a job again when it has lost touch with its node, which may still compute.
        """
        later = self._task.run_dir / f"attempt{self._place.attempt + 1}"
        with contextlib.suppress(OSError):  # listing makes a network file system look again
            os.listdir(self._task.run_dir)
        if later.exists():
            return True
        note = SlurmNote.read(self._task.run_dir)
        return note is not None and note.submission != self._task.submission

    def _is_preempted(self) -> bool:
        """Whether the rank ended because it was told to, with its state saved."""
        kind: Any = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = failure_file(self._dir, self._place.rank).read_text("utf-8")
            kind = json.loads(text)["type"]
        return self._saves and kind == requeue.PREEMPTED

    def _near_limit(self) -> float | None:
        """The time limit, minutes, if that is why the rank was told to save itself."""
        limit = self._task.timeout_min
        gone_min = (time.monotonic() - self._started) / 60
        return limit if limit is not None and gone_min > 0.5 * limit else None

    def _wait_for_rank_0(self) -> None:
        """The first task that ends makes srun impatient, and rank 0 has more to do."""
        deadline = time.monotonic() + requeue.COMMAND_S + 30
        while time.monotonic() < deadline and not exit_file(self._dir, 0).exists():
            time.sleep(0.2)
