"""Hydra launchers for any application: `hydra/launcher=local`, `debug` and `slurm`.

All jobs are composed, and planned by the application, before any starts. See `sweeper.launch.runs`
for what an application may do with the attribute `sweeper_application` of its task function.

Hydra imports this module at the start of every application: what is slow is imported on use.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.sweeper_launcher._conf import register

if TYPE_CHECKING:
    from hydra_plugins.sweeper_launcher._sweep import Door

register()


class RecordedLauncher(Launcher):
    """What the launchers share.

    Args:
        settings: of the master config, from Hydra; not used, for each job's own config counts.
    """

    composes_all_first = True  # the sweeper need not compose the jobs just to check them

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._door: Door | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        # Sweepers set their launcher up before they write anything.
        look = getattr(getattr(task_function, "sweeper_application", None), "look", None)
        if look is not None:
            look(config)
        self._door = self._make_door(hydra_context, task_function, config)

    @abstractmethod
    def _make_door(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> Door: ...

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs; returns one JobReturn each, in their order, when all have ended.

        Raises:
            UserError: a job is wrong or cannot be run here; nothing has started.
            Cancelled: by Ctrl-C (a plain KeyboardInterrupt to applications that do not plan).
        """
        assert self._door is not None
        return self._door.launch(job_overrides, initial_job_idx)

    def close(self) -> None:
        """No more jobs will come."""
        if self._door is not None:
            self._door.close()


class LocalLauncher(RecordedLauncher):
    """Each run a process group of this machine, on GPUs of its own."""

    def _make_door(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> Door:
        from hydra_plugins.sweeper_launcher._doors import LocalDoor

        return LocalDoor(context, task_function, config)


class DebugLauncher(RecordedLauncher):
    """Runs one after another in this process."""

    def _make_door(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> Door:
        from hydra_plugins.sweeper_launcher._doors import DebugDoor

        return DebugDoor(context, task_function, config)


class SlurmLauncher(RecordedLauncher):
    """Each run a job of Slurm."""

    def _make_door(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> Door:
        from hydra_plugins.sweeper_launcher._slurm_door import SlurmDoor

        return SlurmDoor(context, task_function, config)
