"""Runs as process groups of this machine, on exclusive slots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.launch.attempt import Attempt, next_attempt
from sweeper.launch.backend import Ended
from sweeper.launch.devices import BusyGpus, Node
from sweeper.launch.executor import SlotsExecutor, SlotsJob
from sweeper.launch.runs import Resources, Run
from sweeper.launch.scheduler import Scheduler, Work
from sweeper.launch.settings import Settings
from sweeper.launch.slots import Slots
from sweeper.launch.supervised import SupervisorProcess


class LocalBackend:
    """The queue of this machine, behind the submitit executor `slots`.

    Args:
        settings: of the sweep.
        note: tells the person something.
        ahead: a supervisor that was started ahead of need.
        node: the machine; None = this one, as far as this process may use it.
    """

    in_process = False
    interrupted = False
    detaches = False

    def __init__(
        self,
        settings: Settings,
        note: Callable[[str], None] = print,
        ahead: SupervisorProcess | None = None,
        node: Node | None = None,
    ) -> None:
        node = node or Node.here()
        self._settings = settings
        self._ahead = ahead
        slots = Slots(
            node,
            runs_per_gpu=settings.runs_per_gpu,
            exclusive=settings.exclusive_node,
            max_parallel=settings.max_parallel,
        )
        self.scheduler = Scheduler(
            slots, self._supervisor, note, BusyGpus(() if settings.use_busy_gpus else node.gpus)
        )
        self._executor: SlotsExecutor | None = None
        self._jobs: dict[str, tuple[Attempt, SlotsJob[Any] | None]] = {}
        self.on_start: Callable[[Attempt], None] = lambda attempt: None

    def _supervisor(self, may_fork: bool) -> SupervisorProcess:
        ahead, self._ahead = self._ahead, None
        if may_fork and ahead is not None:
            return ahead
        preload = self._settings.preload if self._settings.warm and may_fork else []
        return SupervisorProcess(preload, {**os.environ, **self._settings.env})

    def use_folder(self, folder: Path) -> None:
        """Where submitit keeps the jobs of the sweep."""
        self._executor = SlotsExecutor(folder / "%j", scheduler=self.scheduler)

    @property
    def pending(self) -> Sequence[Attempt]:
        return [self._jobs[work.job][0] for work in self.scheduler.pending]

    @property
    def running(self) -> Sequence[Attempt]:
        return [self._jobs[work.job][0] for work in self.scheduler.running]

    def next_attempt(self, run: Run) -> Attempt:
        return next_attempt(run)

    def flush(self) -> None:
        """Nothing runs here without this command's process."""

    def why_never(self, need: Resources) -> str | None:
        return self.scheduler.slots.why_never(need)

    def submit(self, attempt: Attempt, function: Callable[[], Any]) -> None:
        assert self._executor is not None
        need = attempt.run.resources

        def on_start(work: Work, beside: Sequence[Work]) -> Mapping[str, str]:
            return self._started(attempt, beside)

        self._executor.update_parameters(
            gpus_per_node=need.gpus,
            tasks_per_node=need.ranks_per_node,
            cpus_per_task=need.cpus_per_task,
            timeout_min=need.timeout_min,
            env=need.env,
            log_dir=attempt.dir,
            attempt_dir=attempt.dir,
            on_start=on_start,
        )
        job = self._executor.submit(function)
        assert isinstance(job, SlotsJob)
        self._jobs[job.job_id] = attempt, job

    def _started(self, attempt: Attempt, beside: Sequence[Work]) -> Mapping[str, str]:
        others = [self._jobs[work.job][0] for work in beside]
        attempt.neighbours = [other.run.identity.run_id for other in others]
        attempt.dir.mkdir(parents=True, exist_ok=True)
        for other in others:
            with other.place().neighbours_file.open("a") as file:
                file.write(f"{attempt.run.identity.run_id}\n")
        self.on_start(attempt)
        return {
            **attempt.place().environment(),
            "SWEEPER_HEARTBEAT_S": str(self._settings.heartbeat_s),
        }

    def adopt(self, attempt: Attempt) -> None:
        leftover = attempt.leftover
        assert leftover is not None
        self._jobs[leftover.job] = attempt, None
        self.scheduler.add(
            Work(
                job=leftover.job,
                need=attempt.run.resources,
                folder=attempt.dir,
                log_dir=attempt.dir,
                attempt_dir=attempt.dir,
                leftover=leftover,
            )
        )

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        ended = []
        for work in self.scheduler.advance(timeout_s):
            attempt, job = self._jobs.pop(work.job)
            if job is not None:
                shutil.rmtree(job.paths.folder, ignore_errors=True)
            ended.append(Ended(attempt, work.reason or "lost", work.exits))
        return ended

    def stop(self, attempt: Attempt, reason: str, *, now: bool = False) -> None:
        for work in [*self.scheduler.pending, *self.scheduler.running]:
            if self._jobs[work.job][0] is attempt:
                if work.state == "pending":
                    self.scheduler.pending.remove(work)
                    self._jobs.pop(work.job)
                else:
                    self.scheduler.cancel(work, reason, now=now)

    def close(self) -> None:
        """Let the supervisor go; it ends at once, or with the last of its runs."""
        self.scheduler.close()
