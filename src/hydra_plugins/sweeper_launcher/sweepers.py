"""The sweeper `hydra/sweeper=cells`: Hydra's basic sweeper, without composing every job twice."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from hydra_plugins.sweeper_launcher._conf import register
from sweeper.errors import UserError
from sweeper.sweep_place import check_writable

register()


class CellsSweeper(BasicSweeper):
    """Every combination of the values given, in the order given."""

    _plans = False  # whether the launcher has the application plan all jobs before any starts

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Hydra resolves the launcher's node before it makes one; ours may refer to swept keys."""
        target = str(config.hydra.launcher.get("_target_"))
        bare = config
        if target.startswith("hydra_plugins.sweeper_launcher."):
            bare = copy.deepcopy(config)
            with read_write(bare), open_dict(bare):
                bare.hydra.launcher = {"_target_": target}
        super().setup(hydra_context=hydra_context, task_function=task_function, config=bare)
        self.config = config
        if getattr(task_function, "sweeper_application", None) is not None:
            self._plans = getattr(self.launcher, "composes_all_first", False)
        if self.launcher is not None and bare is not config:
            self.launcher.setup(
                hydra_context=hydra_context, task_function=task_function, config=config
            )

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose all jobs to check them, unless the launcher does so before it starts any."""
        if not getattr(self.launcher, "composes_all_first", False):
            super().validate_batch_is_legal(batch)

    def sweep(self, arguments: list[str]) -> Any:
        assert self.config is not None
        check_writable(Path(str(self.config.hydra.sweep.dir)))  # before anything is started
        try:
            if self._plans:
                return self._sweep_planned(arguments)
            return super().sweep(arguments)
        finally:
            close = getattr(self.launcher, "close", None)
            if close is not None:
                close()

    def _sweep_planned(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """All jobs in one batch; the directory is made once their plan stands, by the launcher.

        Hydra's own loop would write into it first, whether or not the jobs are right.
        """
        assert self.hydra_context is not None
        assert self.launcher is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        for override in overrides:
            if override.is_sweep_override() and not override.is_discrete_sweep():
                key = override.key_or_group
                raise UserError(
                    key,
                    f"{override.get_value_string()} has no values to list",
                    f"list them: {key}=A,B; hydra/sweeper=optuna searches in intervals",
                )
        (batch,) = self.split_arguments(overrides, None)
        self.validate_batch_is_legal(batch)
        returns = self.launcher.launch(batch, initial_job_idx=0)
        for each in returns:
            _ = each.return_value  # raises what the job raised
        return [returns]
