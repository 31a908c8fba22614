"""The sweeper `hydra/sweeper=cells`: Hydra's basic sweeper, without composing every job twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

from hydra_plugins.sweeper_launcher._conf import register
from sweeper.errors import UserError

register()


class CellsSweeper(BasicSweeper):
    """Every combination of the values given, in the order given."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose all jobs to check them, unless the launcher does so before it starts any."""
        if not getattr(self.launcher, "composes_all_first", False):
            super().validate_batch_is_legal(batch)

    def sweep(self, arguments: list[str]) -> Any:
        assert self.config is not None
        directory = Path(str(self.config.hydra.sweep.dir))
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                "hydra.sweep.dir",
                f"{directory} cannot be made: {error.strerror}",
                "choose a writable directory with hydra.sweep.dir=DIR",
            ) from error
        try:
            return super().sweep(arguments)
        finally:
            close = getattr(self.launcher, "close", None)
            if close is not None:
                close()
