"""The sweeper `hydra/sweeper=cells`: Hydra's basic sweeper, without composing every job twice."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from hydra_plugins.sweeper_launcher._conf import register
from sweeper.errors import UserError

register()


class CellsSweeper(BasicSweeper):
    """Every combination of the values given, in the order given."""

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
        directory = Path(str(self.config.hydra.sweep.dir))
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):  # before anything is started
                pass
        except OSError as error:
            raise UserError(
                "hydra.sweep.dir",
                f"{directory} cannot be written: {error.strerror}",
                "choose a writable directory with hydra.sweep.dir=DIR",
            ) from error
        try:
            return super().sweep(arguments)
        finally:
            close = getattr(self.launcher, "close", None)
            if close is not None:
                close()
