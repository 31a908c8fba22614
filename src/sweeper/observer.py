"""The neutral observer that a training step reports its phases to.

`training` calls it, `measure` implements it, and neither imports the other.
"""

from __future__ import annotations

from typing import Literal, Protocol

Phase = Literal[
    "data",  # waiting for the next batch
    "forward",  # forward pass and loss of one micro-batch
    "backward",  # backward pass of one micro-batch
    "communication",  # waiting for gradients of other ranks, where it can be told apart
    "optimizer",  # unscale, clip, update, schedule, zero gradients
    "ema",  # averaging of weights
    "rest",  # everything else, until the step ends
]


class Observer(Protocol):
    def phase(self, name: Phase) -> None:
        """From here on, the step does `name`. Called several times a step; must not synchronise."""


class NullObserver:
    def phase(self, name: Phase) -> None:
        return None
