"""What the ranks of a run tell each other, outside the training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # torch does not declare it

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run; with one rank every call returns what it was given."""

    group: dist.ProcessGroup | None

    @property
    def count(self) -> int:
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def store(self) -> Store | None:
        """What the ranks met through; None with one rank."""
        return None if self.group is None else dist.distributed_c10d._get_default_store()

    def sum(self, value: Tensor) -> Tensor:
        """The sum over ranks; the argument is left alone."""
        if self.group is None:
            return value
        total = value.clone()
        dist.all_reduce(total, group=self.group)
        return total

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in rank order, on every rank."""
        if self.group is None:
            return [value]
        values: list[T | None] = [None] * self.count
        dist.all_gather_object(values, value, group=self.group)
        return [v for v in values if v is not None]

    def all_true(self, value: bool, device: torch.device) -> bool:
        """Whether every rank says yes."""
        if self.group is None:
            return value
        return int(self.sum(torch.tensor(int(value), device=device))) == self.count
