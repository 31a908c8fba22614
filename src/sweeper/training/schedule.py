"""Learning-rate policies: the factor that a step's learning rate is multiplied by.

Any object with `factor(step) -> float` is one; `step` counts updates from 0, and `lr` in the config
chooses it by `_target_`. A policy that has an argument `total_steps` is told the run's steps. Each
begins with `warmup_steps` of linear warm-up, 1/n, 2/n ... n/n of the policy's first value; the
policy itself starts when the warm-up is over.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from sweeper.errors import UserError
from sweeper.instantiate import build, locate


class Schedule(Protocol):
    def factor(self, step: int) -> float:
        """What the learning rate of update `step`, counted from 0, is multiplied by."""
        ...


class Constant:
    """1 after the warm-up; the base of the other policies, which differ in `after`."""

    def __init__(self, warmup_steps: int = 0) -> None:
        if warmup_steps < 0:
            raise UserError(
                "lr.warmup_steps", f"{warmup_steps} is not possible", "use 0 for no warm-up"
            )
        self.warmup_steps = warmup_steps

    def factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps * self.after(0)
        return self.after(step - self.warmup_steps)

    def after(self, step: int) -> float:
        """The policy itself; `step` counts from the end of the warm-up."""
        return 1.0


class Step(Constant):
    """Multiplied by `decay` every `every` updates."""

    def __init__(self, every: int, decay: float = 0.1, warmup_steps: int = 0) -> None:
        super().__init__(warmup_steps)
        if every < 1:
            raise UserError("lr.every", f"{every} is not possible", "use 1 or more")
        self.every, self.decay = every, decay

    def after(self, step: int) -> float:
        return float(self.decay ** (step // self.every))


class MultiStep(Constant):
    """Multiplied by `decay` at each of `milestones`: updates since the end of the warm-up."""

    def __init__(self, milestones: list[int], decay: float = 0.1, warmup_steps: int = 0) -> None:
        super().__init__(warmup_steps)
        self.milestones, self.decay = milestones, decay

    def after(self, step: int) -> float:
        return float(self.decay ** sum(step >= milestone for milestone in self.milestones))


class Exponential(Constant):
    """decay^step."""

    def __init__(self, decay: float = 0.99, warmup_steps: int = 0) -> None:
        super().__init__(warmup_steps)
        self.decay = decay

    def after(self, step: int) -> float:
        return float(self.decay**step)


class Inverse(Constant):
    """(1 + gamma step)^-power."""

    def __init__(self, gamma: float = 1e-4, power: float = 0.75, warmup_steps: int = 0) -> None:
        super().__init__(warmup_steps)
        self.gamma, self.power = gamma, power

    def after(self, step: int) -> float:
        return float((1 + self.gamma * step) ** -self.power)


class _Bounded(Constant, ABC):
    """A policy that goes from 1 to `min_factor` over the run's updates after the warm-up."""

    def __init__(self, total_steps: int, warmup_steps: int = 0, min_factor: float = 0.0) -> None:
        super().__init__(warmup_steps)
        if not 0 <= min_factor <= 1:
            raise UserError("lr.min_factor", f"{min_factor} is no share", "use a value in [0, 1]")
        if warmup_steps >= total_steps:
            raise UserError(
                "lr.warmup_steps",
                f"{warmup_steps} warm-up steps leave none of train.steps={total_steps}",
                f"use lr.warmup_steps={total_steps - 1} or less, or more train.steps",
            )
        self.decay_steps, self.min_factor = total_steps - warmup_steps, min_factor

    def after(self, step: int) -> float:
        share = min(step / self.decay_steps, 1.0)
        return self.min_factor + (1 - self.min_factor) * self.shape(share)

    @abstractmethod
    def shape(self, share: float) -> float:
        """From 1 down to 0 while `share` of the run goes from 0 to 1."""


class Cosine(_Bounded):
    """(1 + cos(pi share)) / 2; Loshchilov & Hutter, "SGDR", ICLR 2017, without restarts."""

    def shape(self, share: float) -> float:
        return (1 + math.cos(math.pi * share)) / 2


class Polynomial(_Bounded):
    """(1 - share)^power; linear with power 1."""

    def __init__(
        self,
        total_steps: int,
        power: float = 1.0,
        warmup_steps: int = 0,
        min_factor: float = 0.0,
    ) -> None:
        super().__init__(total_steps, warmup_steps, min_factor)
        self.power = power

    def shape(self, share: float) -> float:
        return float((1 - share) ** self.power)


class Sigmoid(_Bounded):
    """1 / (1 + exp(steepness (share - middle))): slow, fast around `middle`, slow."""

    def __init__(
        self,
        total_steps: int,
        steepness: float = 10.0,
        middle: float = 0.5,
        warmup_steps: int = 0,
        min_factor: float = 0.0,
    ) -> None:
        super().__init__(total_steps, warmup_steps, min_factor)
        self.steepness, self.middle = steepness, middle

    def shape(self, share: float) -> float:
        return 1 / (1 + math.exp(self.steepness * (share - self.middle)))


def build_schedule(node: Mapping[str, Any], total_steps: int) -> Schedule:
    """The config's learning-rate policy.

    Raises:
        UserError: the node cannot be built, or what it builds has no `factor`.
    """
    target = locate(node, "lr")
    wants_total = "total_steps" in inspect.signature(target).parameters
    schedule = build(node, "lr", **({"total_steps": total_steps} if wants_total else {}))
    if not callable(getattr(schedule, "factor", None)):
        raise UserError(
            "lr._target_",
            f"{node['_target_']} has no method factor(step)",
            "name a policy that has",
        )
    result: Schedule = schedule
    return result
