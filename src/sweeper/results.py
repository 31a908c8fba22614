"""What the steps of a run returned, one value a step, without an allocation for each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sweeper.errors import DivergedError
from sweeper.training.step import StepResult

_NAMES = ("loss", "grad_norm", "skipped", "lr")


class Results:
    """The series of `StepResult`s on one rank.

    What only the device knows stays there, in one tensor a name for all steps of the run: a small
    tensor a step would show as memory that grows. Adding never waits for the device.

    Args:
        steps: of the whole run.
    """

    def __init__(self, steps: int) -> None:
        self.count = 0
        self._steps = steps
        self._known: dict[str, list[Any]] = {name: [] for name in _NAMES}
        self._on_device: dict[str, Tensor] = {}

    def add(self, result: StepResult) -> None:
        for name in _NAMES:
            value = getattr(result, name)
            if isinstance(value, Tensor):
                self._column(name, value)[self.count] = value
                value = None
            self._known[name].append(value)
        self.count += 1

    def _column(self, name: str, like: Tensor) -> Tensor:
        if name not in self._on_device:
            self._on_device[name] = torch.zeros(self._steps, dtype=like.dtype, device=like.device)
        return self._on_device[name]

    def losses(self) -> Tensor:
        """(steps so far,) float32, on the device: this rank's share of each step's loss."""
        return self._on_device["loss"][: self.count]

    def check_finite(self) -> None:
        """Check this rank's losses so far; waits for the device.

        Raises:
            DivergedError: one is not finite, of a step that was not skipped.
        """
        if "loss" not in self._on_device:
            return
        for step, (loss, skipped) in enumerate(
            zip(self.losses().tolist(), self.values("skipped"), strict=True)
        ):
            if not math.isfinite(loss) and not skipped:
                raise DivergedError(f"the loss is {loss} in step {step}")

    def values(self, name: str) -> list[Any]:
        """`grad_norm`, `skipped` or `lr` of each step; None where there is none. Waits."""
        known = self._known[name]
        column = self._on_device.get(name)
        if column is None:
            return list(known)
        pairs = zip(known, column[: self.count].tolist(), strict=True)
        return [held if value is None else value for value, held in pairs]

    def state_dict(self) -> dict[str, Any]:
        """The series so far; its tensors on the CPU."""
        return {
            "known": {name: list(values) for name, values in self._known.items()},
            "on_device": {n: c[: self.count].cpu() for n, c in self._on_device.items()},
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self._known = {name: list(values) for name, values in state["known"].items()}
        self.count = len(self._known["loss"])
        for name, values in state["on_device"].items():
            like = values.to(device)
            self._column(name, like)[: self.count] = like
