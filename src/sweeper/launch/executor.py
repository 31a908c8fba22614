"""A submitit executor for one machine that gives every job GPUs of its own and queues the rest.

Registered with submitit under the name `slots`:

    executor = submitit.AutoExecutor("logs", cluster="slots")
    executor.update_parameters(gpus_per_node=2, timeout_min=60)
    job = executor.submit(train, 1e-3)

A job has `tasks_per_node` ranks, by default one for each GPU. Jobs move on whenever one of them is
asked or waited for. Inside a job `submitit.JobEnvironment()` works as usual.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit.core import core
from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission, JobPaths

from sweeper.launch.devices import Node
from sweeper.launch.runs import Resources
from sweeper.launch.scheduler import Scheduler, Work
from sweeper.launch.slots import Slots
from sweeper.launch.supervised import SupervisorProcess
from sweeper.place import log_files

OnStart = Callable[[Work, Sequence[Work]], Mapping[str, str]]


class SlotsJobEnvironment(JobEnvironment):
    _env = {  # noqa: RUF012  # declared by submitit
        "job_id": "SUBMITIT_SLOTS_JOB_ID",
        "num_tasks": "SUBMITIT_SLOTS_NTASKS",
        "num_nodes": "SUBMITIT_SLOTS_JOB_NUM_NODES",
        "node": "SUBMITIT_SLOTS_NODEID",
        "global_rank": "SUBMITIT_SLOTS_GLOBALID",
        "local_rank": "SUBMITIT_SLOTS_LOCALID",
    }

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """The rank has its handlers already; submitit's would ignore SIGTERM."""


class SlotsPaths(JobPaths):
    """submitit's paths, with the ranks' output where the job was told to put it."""

    log_dir: Path | None = None

    @property
    def stdout(self) -> Path:
        return log_files(self.log_dir, self.task_id)[0] if self.log_dir else super().stdout

    @property
    def stderr(self) -> Path:
        return log_files(self.log_dir, self.task_id)[1] if self.log_dir else super().stderr


class SlotsJob(core.Job[core.R]):
    """A job of the queue; with several ranks, `task(k)` is one of them."""

    # The ranks' processes are known to have gone: a result that is not there will not come.
    _results_timeout_s = 0

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths = SlotsPaths(folder, job_id=job_id, task_id=self.task_id)
        self._scheduler: Scheduler | None = None
        self._work: Work | None = None

    def _register_in_watcher(self) -> None:
        """There is no cluster to ask."""

    def attach(self, scheduler: Scheduler, work: Work) -> None:
        for job in (self, *self._sub_jobs):
            assert isinstance(job, SlotsJob)
            job._scheduler, job._work = scheduler, work
            assert isinstance(job._paths, SlotsPaths)
            job._paths.log_dir = work.log_dir

    @property
    def work(self) -> Work:
        if self._work is None:
            raise RuntimeError("this job was not submitted by this process")
        return self._work

    @property
    def state(self) -> str:
        work = self.work
        if work.state != "ended":
            return work.state.upper()
        if work.reason in ("exited", "rank"):
            return "COMPLETED" if all(end["code"] == 0 for end in work.exits) else "FAILED"
        return str(work.reason).upper()

    def get_info(self, mode: str = "force") -> dict[str, str]:
        return {"jobState": self.state}

    def done(self, force_check: bool = False) -> bool:
        if self.work.state != "ended" and self._scheduler is not None:
            self._scheduler.advance(0)
        return self.work.state == "ended"

    def wait(self) -> None:
        while not self.done():
            assert self._scheduler is not None
            self._scheduler.advance(None)

    def cancel(self, check: bool = True) -> None:
        if self._scheduler is not None:
            self._scheduler.cancel(self.work, "cancelled")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scheduler": None, "_work": None}


class SlotsExecutor(core.Executor):
    """Submits jobs to the queue of this machine.

    Args:
        folder: for submitit's files and, by default, the ranks' output.
        scheduler: the queue; None = one of its own, over all GPUs this process may use.
        warm: fork ranks from a process that has imported `preload`.
        preload: modules to import there.
        runs_per_gpu: jobs that may hold the same GPU.
        max_parallel: most jobs at a time.
        exclusive: one job at a time; None = on a machine without GPUs.
    """

    job_class = SlotsJob

    def __init__(
        self,
        folder: str | Path,
        scheduler: Scheduler | None = None,
        warm: bool = True,
        preload: Sequence[str] = ("submitit.core.submission",),
        runs_per_gpu: int = 1,
        max_parallel: int | None = None,
        exclusive: bool | None = None,
    ) -> None:
        super().__init__(folder)
        if scheduler is None:
            scheduler = Scheduler(
                Slots(
                    Node.here(),
                    runs_per_gpu=runs_per_gpu,
                    max_parallel=max_parallel,
                    exclusive=exclusive,
                ),
                lambda may_fork: SupervisorProcess(
                    preload if warm and may_fork else (), os.environ
                ),
            )
        self.scheduler = scheduler

    @classmethod
    def affinity(cls) -> int:
        return 0  # used where it is asked for

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return {"env", "log_dir", "attempt_dir", "on_start", "job_id"}

    def _internal_process_submissions(
        self, delayed_submissions: list[DelayedSubmission]
    ) -> list[core.Job[Any]]:
        return [self._submit(delayed) for delayed in delayed_submissions]

    def _submit(self, delayed: DelayedSubmission) -> core.Job[Any]:
        given = self.parameters
        need = Resources(
            gpus=given.get("gpus_per_node", 0),
            nodes=given.get("nodes", 1),
            ranks=given.get("tasks_per_node"),
            cpus_per_task=given.get("cpus_per_task"),
            timeout_min=given.get("timeout_min"),
            env=given.get("env", {}),
        )
        reason = self.scheduler.slots.why_never(need)
        if reason is not None:
            raise ValueError(f"this machine cannot run the job: {reason}")
        job_id = given.get("job_id") or uuid.uuid4().hex[:12]
        tasks = list(range(need.ranks_per_node))
        job: SlotsJob[Any] = SlotsJob(self.folder, job_id, tasks)
        # The pickle is there before a rank can look for it.
        job.paths.submitted_pickle.parent.mkdir(parents=True, exist_ok=True)
        delayed.set_timeout(need.timeout_min or 0, 0)  # type: ignore[arg-type]  # minutes, any number
        delayed.dump(job.paths.submitted_pickle)
        work = Work(
            job=job_id,
            need=need,
            folder=job.paths.folder,
            log_dir=Path(given.get("log_dir") or job.paths.folder / f"{job_id}_log"),
            attempt_dir=given.get("attempt_dir"),
            on_start=given.get("on_start"),
        )
        job.attach(self.scheduler, work)
        self.scheduler.add(work)
        return job
