"""The doors of `hydra/launcher=local` and `hydra/launcher=debug`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.sweeper_launcher._job import (
    RankJob,
    SharedTask,
    load_return,
    place_output,
    run_as_rank,
)
from hydra_plugins.sweeper_launcher._sweep import Door
from sweeper.launch.attempt import Attempt
from sweeper.launch.backend import Backend
from sweeper.launch.debug import DebugBackend
from sweeper.launch.launcher import job_folder, remove_job_folder
from sweeper.launch.local import LocalBackend
from sweeper.launch.settings import Settings
from sweeper.launch.supervised import SupervisorProcess

OWN_MODULES = ("hydra_plugins.sweeper_launcher._ahead", "sweeper.launch.executor")


class LocalDoor(Door):
    def __init__(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        super().__init__(context, task_function, config)
        self._local: LocalBackend | None = None
        self._ahead: SupervisorProcess | None = None
        self._shared_file: Path | None = None

    def prepare(self) -> None:
        """Start the process that forks the ranks: it imports while the jobs are composed."""
        node = self._config.hydra.launcher
        if self._local is None and node.warm:
            # A value that refers to the job's config is not known yet; its runs start cold.
            fixed = [name for name in node.env if not OmegaConf.is_interpolation(node.env, name)]
            known = {**os.environ, **{str(name): str(node.env[name]) for name in fixed}}
            self._ahead = SupervisorProcess([*OWN_MODULES, *node.preload], known)

    def close(self) -> None:
        for owner in (self._local, self._ahead):
            if owner is not None:
                owner.close()
        self._local = self._ahead = None

    def _backend(self, settings: Settings) -> Backend:
        if self._local is None:
            self._local = LocalBackend(settings, self._note, self._ahead)
            self._local.on_start = self._started
        self._shared_file = None
        self._local.use_folder(job_folder(self._home))
        return self._local

    def _launch(self, job_overrides: list[list[str]], initial: int) -> list[JobReturn]:
        try:
            return super()._launch(job_overrides, initial)
        finally:
            remove_job_folder(self._home)

    def _note(self, text: str) -> None:
        assert self._view is not None
        self._view.note(text)

    def _started(self, attempt: Attempt) -> None:
        assert self._view is not None
        self._view.started(attempt.run)

    def function(self, attempt: Attempt) -> Callable[[], Any]:
        if self._shared_file is None:
            self._shared_file = job_folder(self._home) / "task.pkl"
            shared = SharedTask(
                self._task_function,
                self._context,
                Singleton.get_state(),
                getattr(sys.modules["__main__"], "__file__", None),
            )
            shared.dump(self._shared_file)
        return RankJob(self._shared_file, attempt.run, attempt.return_file)

    def _returned(self, attempt: Attempt) -> JobReturn | None:
        return load_return(attempt.return_file)


class DebugDoor(Door):
    def __init__(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        super().__init__(context, task_function, config)
        self._results: dict[int, JobReturn] = {}

    def _backend(self, settings: Settings) -> Backend:
        backend = DebugBackend(settings)
        view = self._view
        assert view is not None
        backend.on_start = lambda attempt: view.started(attempt.run)
        return backend

    def function(self, attempt: Attempt) -> Callable[[], Any]:
        def call() -> None:
            config = place_output(attempt.run.config.unpack(), attempt.run)
            try:
                result = run_as_rank(self._task_function, self._context, config, rank=0)
            finally:
                configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
            if attempt.run.writes_record:  # as from another process
                result.cfg = result.hydra_cfg = None
            self._results[id(attempt)] = result
            if result.status is JobStatus.FAILED:
                raise result._return_value

        return call

    def _returned(self, attempt: Attempt) -> JobReturn | None:
        return self._results.get(id(attempt))
