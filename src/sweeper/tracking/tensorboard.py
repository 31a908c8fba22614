"""Mirrors a run to TensorBoard event files in the run's directory."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

from sweeper.errors import UserError
from sweeper.record import Identity, Status
from sweeper.tracking.summary import RECORD_KEY

DIRECTORY = "tensorboard"


class TensorboardTracker:
    """Series as scalars; the chosen options and the summary's figures as hparams.

    `tensorboard --logdir <sweep directory>` shows the runs of a sweep side by side.

    Raises:
        UserError: TensorBoard is not installed.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError(
                "tracker",
                "TensorBoard is not installed",
                "pip install 'sweeper[tensorboard]', or use tracker=wandb",
            )
        self._writer: Any = None
        self._options: dict[str, str] = {}
        self._figures: dict[str, float] = {}

    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run_dir / DIRECTORY))
        self._options = {
            **identity.choices,
            "variant": identity.variant,
            "sweep": identity.sweep,
            "repeat": str(identity.repeat),
        }

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def summary(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._figures[name] = float(value)
        if RECORD_KEY in values:
            self._writer.add_text(RECORD_KEY, values[RECORD_KEY])

    def finish(self, status: Status) -> None:
        options = {**self._options, "status": status.value}
        # "." keeps the hparams in the run's own directory; else they become a run of their own.
        self._writer.add_hparams(options, self._figures, run_name=".")
        self._writer.close()
