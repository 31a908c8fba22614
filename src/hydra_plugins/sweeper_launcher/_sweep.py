"""From Hydra's jobs to a sweep's runs and back: compose, plan, launch, return."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import (
    JobReturn,
    configure_log,
    filter_overrides,
    setup_globals,
)
from hydra.errors import CompactHydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.sweeper_launcher._returns import job_return
from sweeper.errors import UserError
from sweeper.launch.attempt import Attempt
from sweeper.launch.backend import Backend
from sweeper.launch.environment import refuse_torchrun
from sweeper.launch.errors import Cancelled
from sweeper.launch.launcher import Outcome, launch
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Application, Resources, Run, settings_from
from sweeper.launch.settings import Settings
from sweeper.launch.view import View, best_view
from sweeper.record import Identity, write_atomic

MULTIRUN_FILE = "multirun.yaml"  # Hydra's: the config without the sweep's overrides


class ShownUserError(UserError, CompactHydraException):
    """Hydra prints it as one message, without a traceback."""


class Door(ABC):
    """One launcher's way from jobs to returns.

    Args:
        context: Hydra's.
        task_function: the application's.
        config: the master config, composed without the sweep's overrides.
    """

    def __init__(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context = context
        self._task_function = task_function
        self._config = config
        self._application: Application | None = getattr(task_function, "sweeper_application", None)
        self._view: View | None = None
        self._home = Path()

    @abstractmethod
    def _backend(self, settings: Settings) -> Backend: ...

    @abstractmethod
    def function(self, attempt: Attempt) -> Callable[[], Any]:
        """What each rank of the attempt calls."""

    @abstractmethod
    def _returned(self, attempt: Attempt) -> JobReturn | None:
        """What the task itself returned or raised, if it came so far."""

    def prepare(self) -> None:  # noqa: B027  # a launcher may have nothing to prepare
        """Begin what can be done while the jobs are composed."""

    def close(self) -> None:  # noqa: B027  # or to close
        """No more jobs will come."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial: int) -> list[JobReturn]:
        before = HydraConfig.instance().cfg
        try:
            refuse_torchrun(os.environ)
            setup_globals()
            configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
            return self._launch([list(overrides) for overrides in job_overrides], initial)
        except UserError as error:
            raise ShownUserError(*error.args) from error
        except Cancelled:
            if self._application is None:
                raise KeyboardInterrupt from None
            raise
        finally:
            HydraConfig.instance().cfg = before

    def _launch(self, job_overrides: list[list[str]], initial: int) -> list[JobReturn]:
        self.prepare()
        first = self._compose(job_overrides[0], initial)
        # One at a time: their trees need not be in memory together.
        configs = itertools.chain(
            [first],
            (
                self._compose(overrides, initial + position)
                for position, overrides in enumerate(job_overrides)
                if position > 0
            ),
        )
        planned_at = time.time()
        if self._application is not None:
            runs = list(self._application.plan(configs, job_overrides))
            self._home = runs[0].run_dir.parent
            with contextlib.suppress(OSError):  # nothing depends on it; what matters complains
                self._home.mkdir(parents=True, exist_ok=True)
                write_atomic(self._home / MULTIRUN_FILE, OmegaConf.to_yaml(self._config))
        else:
            sweep_dir = Path(str(first.hydra.sweep.dir)).absolute()
            self._home = sweep_dir / ".sweeper"
            runs = _plain_runs(configs, job_overrides, self._home, initial)
        HydraConfig.instance().set_config(first)
        settings = settings_from(first)
        self._view = best_view()
        outcomes = launch(
            runs,
            task=self,
            backend=self._backend(settings),
            settings=settings,
            view=self._view,
            home=self._home,
            planned_at=planned_at,
        )
        return self._returns(outcomes, job_overrides)

    def _compose(self, overrides: list[str], number: int) -> DictConfig:
        config = self._context.config_loader.load_sweep_config(self._config, overrides)
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return config

    def _returns(self, outcomes: list[Outcome], job_overrides: list[list[str]]) -> list[JobReturn]:
        found: dict[int, JobReturn] = {}
        for outcome in outcomes:
            real = self._returned(outcome.attempt) if outcome.attempt is not None else None
            for job in outcome.run.job_numbers:
                found[job] = job_return(outcome, job_overrides[job], real)
        return [found[job] for job in range(len(job_overrides))]


def _plain_runs(
    configs: Iterable[DictConfig], job_overrides: Sequence[list[str]], home: Path, initial: int
) -> list[Run]:
    """One run a job, in Hydra's own directories; what the launcher keeps goes to a hidden one."""
    session = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    runs = []
    for position, (config, overrides) in enumerate(zip(configs, job_overrides, strict=True)):
        HydraConfig.instance().set_config(config)  # for interpolations that refer to it
        number = str(initial + position)
        shown = [*filter_overrides(overrides)]
        identity = Identity(
            sweep=home.parent.name,
            run_id=f"{session}-{number}",
            config_id="",
            overrides=shown,
            variant="+".join(shown) or f"job-{number}",
        )
        runs.append(
            Run(
                identity=identity,
                config=PackedConfig(config),
                run_dir=home / session / number,
                resources=Resources.from_config(config),
                job_numbers=[position],
                writes_record=False,
            )
        )
    return runs
