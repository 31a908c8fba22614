"""Parts of a run that disturb it at a known moment: they signal the run's own process, for real.

SWEEPER_DISTURB holds `rank:moment:what` entries, separated by commas.

Moments: `setup`, `first` and `last` (evaluation), `stepN` (in the Nth update of this process),
`save`. What: `signal`, `twice`, `kill`, or `newer`, which makes the next attempt's directory.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from torch import Tensor

from sweeper.data.digits import Digits
from sweeper.models.objective import Batch
from sweeper.place import Place

VARIABLE = "SWEEPER_DISTURB"
_updates = 0


def now(moment: str) -> None:
    place = Place.from_environment()
    for entry in filter(None, os.environ.get(VARIABLE, "").split(",")):
        rank, when, what = entry.split(":")
        if int(rank) != place.rank or when != moment:
            continue
        if what == "newer":
            (place.run_dir / f"attempt{place.attempt + 1}").mkdir(exist_ok=True)
        elif what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            for _ in range(2 if what == "twice" else 1):
                os.kill(os.getpid(), signal.SIGUSR2)


class DisturbingDigits(Digits):
    """The digits; disturbs while it is made and while it is evaluated."""

    def __init__(self, split: Any, **arguments: Any) -> None:
        super().__init__(split, **arguments)
        self.evaluates = split == "validation"
        if self.evaluates:
            now("setup")

    def items(self, indices: Tensor) -> Batch:
        if self.evaluates:
            now("last" if _updates else "first")
        return super().items(indices)


class DisturbingAdamW(torch.optim.AdamW):
    """AdamW; disturbs in its steps and while its state is saved."""

    def step(self, closure: Any = None) -> Any:
        global _updates
        _updates += 1
        now(f"step{_updates}")
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        now("save")
        return super().state_dict()
