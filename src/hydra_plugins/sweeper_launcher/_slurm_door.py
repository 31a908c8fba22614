"""The door of `hydra/launcher=slurm`."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.sweeper_launcher._job import RankJob, SharedTask, load_return
from hydra_plugins.sweeper_launcher._sweep import Door
from sweeper.launch.attempt import Attempt
from sweeper.launch.backend import Backend
from sweeper.launch.errors import Detached
from sweeper.launch.settings import Settings
from sweeper.launch.slurm import SlurmBackend
from sweeper.launch.slurm_groups import remove_unused

RETURN_FILE = "return.pkl"  # in the run's directory: its attempts are more than one


class SlurmDoor(Door):
    def __init__(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        super().__init__(context, task_function, config)
        self._folder = Path()

    def _backend(self, settings: Settings) -> Backend:
        assert self._view is not None
        view = self._view
        self._folder = self._home / ".slurm" / uuid.uuid4().hex[:8]
        backend = SlurmBackend(settings, self._folder, view.note)
        backend.on_start = lambda attempt: view.started(attempt.run)
        return backend

    def _launch(self, job_overrides: list[list[str]], initial: int) -> list[JobReturn]:
        try:
            returns = super()._launch(job_overrides, initial)
        except Detached:
            assert self._view is not None
            self._view.note(
                f"the runs are with Slurm; look at them with python -m sweeper.status {self._home}"
            )
            return [_nothing_yet(overrides) for overrides in job_overrides]
        remove_unused(self._home)
        return returns

    def function(self, attempt: Attempt) -> Callable[[], Any]:
        shared_file = self._folder / "task.pkl"
        if not shared_file.exists():
            shared = SharedTask(
                self._task_function,
                self._context,
                Singleton.get_state(),
                getattr(sys.modules["__main__"], "__file__", None),
            )
            shared.dump(shared_file)
        return RankJob(shared_file, attempt.run, attempt.run.run_dir / RETURN_FILE)

    def _returned(self, attempt: Attempt) -> JobReturn | None:
        return load_return(attempt.run.run_dir / RETURN_FILE)


def _nothing_yet(overrides: list[str]) -> JobReturn:
    result = JobReturn()
    result.overrides = overrides
    result.status = JobStatus.COMPLETED
    result.return_value = None
    return result
