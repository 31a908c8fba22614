"""Runs as jobs of Slurm: one array for all that need the same."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.failure import ENDED_FILE
from sweeper.launch import finish, slurm_request
from sweeper.launch.attempt import Attempt, attempts, next_attempt
from sweeper.launch.backend import Ended
from sweeper.launch.runs import Resources, Run
from sweeper.launch.settings import Settings
from sweeper.launch.slurm_cluster import SlurmCluster
from sweeper.launch.slurm_end import read_exits, record_of
from sweeper.launch.slurm_groups import Element, groups, job_log, submit_group
from sweeper.launch.slurm_note import SlurmNote
from sweeper.launch.slurm_states import JobState, SlurmStates, cancel, find_job, look_up
from sweeper.launch.slurm_stop import write_stop
from sweeper.launch.slurm_task import SlurmTask
from sweeper.launch.supervised import import_path
from sweeper.record import RECORD_FILE, dump, write_atomic, write_record

LOOK_EVERY_S = 0.3
# A hung rank shows its stacks and ends when its task is told to; after this the job is cancelled.
STOP_TO_CANCEL_S = 20.0
# How long the other ranks of a recorded run may take to close down before it counts as ended.
CLOSE_S = 15.0


@dataclass(eq=False)
class _Job:
    attempt: Attempt
    note: SlurmNote
    id: str
    started: bool = False
    stopped: str | None = None  # why we end it
    cancel_at: float | None = None
    recorded_at: float | None = None  # when its record was first seen


class SlurmBackend:
    """Hands runs over to Slurm and follows them by their files, and by the scheduler's word.

    Args:
        settings: of the sweep.
        folder: for the pickles and job logs of this command; seen by all nodes.
        note: tells the person something.
        cluster: None = the one that Slurm's commands talk to.
    """

    in_process = False
    interrupted = False
    detaches = True

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        note: Callable[[str], None] = print,
        cluster: SlurmCluster | None = None,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._note = note
        self._cluster = cluster or SlurmCluster.here()
        self._states = SlurmStates()
        self._waiting: list[Element] = []
        self._jobs: list[_Job] = []
        self._ended: list[Ended] = []
        self._told: set[str] = set()
        self.on_start: Callable[[Attempt], None] = lambda attempt: None

    @property
    def pending(self) -> Sequence[Attempt]:
        submitted = [job.attempt for job in self._jobs if not job.started]
        return [*(element.attempt for element in self._waiting), *submitted]

    @property
    def running(self) -> Sequence[Attempt]:
        return [job.attempt for job in self._jobs if job.started]

    def _shaped(self, need: Resources) -> Resources:
        """Spread over nodes; processes where the partition has no GPU."""
        found = self._cluster.of(need)
        most = need.cluster.get("gpus_per_node_max") or self._cluster.gpus_per_node(need)
        if most:
            return slurm_request.spread(need, most)
        if need.gpus and found:
            self._tell(f"{found[0].partition} has no GPUs: each rank computes on the CPU")
            return dataclasses.replace(need, gpus=0, ranks=need.ranks_per_node)
        return need

    def why_never(self, need: Resources) -> str | None:
        return self._cluster.why_never(need)

    def next_attempt(self, run: Run) -> Attempt:
        """The run's job if it has one that is not over; else what is left of it is settled."""
        run.resources = self._shaped(run.resources)
        note = SlurmNote.read(run.run_dir)
        if note is None or (run.run_dir / RECORD_FILE).exists():
            SlurmNote.remove(run.run_dir)
            return next_attempt(run)
        number = max([note.base, *attempts(run.run_dir)])
        attempt = Attempt(run, number)
        job = note.job or find_job(note.name, note.index)
        state = look_up(job) if job is not None else JobState("GONE")
        if state is None or not state.is_over:
            attempt.job = job
            return attempt
        if (run.run_dir / RECORD_FILE).exists():  # written just now
            return self.next_attempt(run)
        SlurmNote.remove(run.run_dir)
        if not attempt.dir.exists():
            return attempt  # it left the queue before it began
        if not (attempt.dir / ENDED_FILE).exists():
            record = record_of(attempt, state, None, job_log(Path(note.folder), job))
            write_atomic(attempt.dir / ENDED_FILE, dump(record))
        return Attempt(run, number + 1)

    def adopt(self, attempt: Attempt) -> None:
        note = SlurmNote.read(attempt.run.run_dir)
        assert note is not None
        assert attempt.job is not None
        self._jobs.append(_Job(attempt, note, attempt.job))

    def submit(self, attempt: Attempt, function: Callable[[], Any]) -> None:
        need = attempt.run.resources
        task = SlurmTask(
            run_dir=attempt.run.run_dir,
            submission="",  # known when its array is
            base=attempt.number,
            folder=self._folder,
            ranks_per_node=need.ranks_per_node,
            cwd=os.getcwd(),
            argv=list(sys.argv),
            sys_path=import_path(),
            env={"SWEEPER_HEARTBEAT_S": str(self._settings.heartbeat_s), **need.env},
            timeout_min=need.timeout_min,
            hang_timeout_min=need.hang_timeout_min if attempt.run.writes_record else None,
            max_requeues=int(need.cluster.get("max_requeues", 0)),
        )
        self._waiting.append(Element(attempt, task, function))

    def flush(self) -> None:
        """Submit what waits: one array for each group."""
        waiting, self._waiting = self._waiting, []
        for group in groups(waiting):
            refused = submit_group(group, self._folder, self._settings.max_parallel)
            if refused is not None:
                for element in group:
                    self._skip(element.attempt, f"sbatch refuses it: {refused}")
                continue
            for element in group:
                assert element.note is not None
                assert element.note.job is not None
                self._jobs.append(_Job(element.attempt, element.note, element.note.job))

    def _skip(self, attempt: Attempt, reason: str) -> None:
        SlurmNote.remove(attempt.run.run_dir)
        finish.skip(attempt, reason)
        self._ended.append(Ended(attempt, "skipped"))

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        self.flush()
        deadline = time.monotonic() + timeout_s
        while True:
            self._look()
            if self._ended or time.monotonic() >= deadline or not self._jobs:
                ended, self._ended = self._ended, []
                return ended
            time.sleep(min(LOOK_EVERY_S, timeout_s))

    def _look(self) -> None:
        """The records first; then what Slurm says."""
        for job in list(self._jobs):
            self._follow_files(job)
        if self._jobs and self._states.refresh([job.id for job in self._jobs]):
            for job in list(self._jobs):
                self._follow_state(job)

    def _follow_files(self, job: _Job) -> None:
        attempt = job.attempt
        if (attempt.run.run_dir / RECORD_FILE).exists():
            job.recorded_at = job.recorded_at or time.monotonic()
            closed = len(read_exits(attempt.dir)) >= attempt.run.resources.world_size
            if closed or time.monotonic() - job.recorded_at > CLOSE_S:
                self._end(job, "exited")
            return
        if not attempt.run.writes_record and self._all_well(attempt):
            self._record(job, JobState("COMPLETED"))
            return
        if (later := attempts(attempt.run.run_dir)) and later[-1] > attempt.number:
            attempt.number = later[-1]
            self._note(f"{attempt.run.label} goes on: attempt {attempt.number}")
        if not job.started and attempt.dir.exists():
            job.started = True
            self.on_start(attempt)

    def _follow_state(self, job: _Job) -> None:
        if job.cancel_at is not None and time.monotonic() >= job.cancel_at:
            job.cancel_at = None
            cancel([job.id])
        state = self._states[job.id]
        if state is None:
            return
        if state.never:
            cancel([job.id])
            self._jobs.remove(job)
            self._skip(job.attempt, f"Slurm can never start it: {state.reason}")
        elif state.is_over:
            self._follow_files(job)  # its last words may just have arrived
            if job.recorded_at is not None and job in self._jobs:
                self._end(job, "exited")
            elif job in self._jobs:
                self._record(job, state)

    @staticmethod
    def _all_well(attempt: Attempt) -> bool:
        """Whether every rank has ended, and ended well."""
        codes = [end["code"] for end in read_exits(attempt.dir)]
        return len(codes) == attempt.run.resources.world_size and not any(codes)

    def _record(self, job: _Job, state: JobState) -> None:
        log = job_log(Path(job.note.folder), job.id)
        record = record_of(job.attempt, state, job.stopped, log)
        write_record(job.attempt.run.run_dir, record)
        self._end(job, job.stopped or "exited")

    def _end(self, job: _Job, reason: str) -> None:
        self._jobs.remove(job)
        SlurmNote.remove(job.attempt.run.run_dir)
        self._ended.append(Ended(job.attempt, reason))

    def stop(self, attempt: Attempt, reason: str, *, now: bool = False) -> None:
        self._waiting = [element for element in self._waiting if element.attempt is not attempt]
        for job in [job for job in self._jobs if job.attempt is attempt]:
            if not job.started:
                cancel([job.id])
                self._jobs.remove(job)
                SlurmNote.remove(attempt.run.run_dir)
                continue
            job.stopped = job.stopped or reason
            write_stop(attempt.dir, reason)
            if reason == "cancelled":
                cancel([job.id], at_once=now)
            else:
                job.cancel_at = time.monotonic() + STOP_TO_CANCEL_S

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)
