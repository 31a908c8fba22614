"""One batch on its way: read, drawn for, weighed, pinned, copied to the device."""

from __future__ import annotations

import torch
from torch import Tensor

from sweeper.data.dataset import Dataset
from sweeper.data.keyed import Keys
from sweeper.errors import UserError
from sweeper.models.objective import Batch, Objective

Weight = int | Tensor  # units a batch's loss sums over


def build_batch(dataset: Dataset, objective: Objective, keys: Keys) -> tuple[Batch, Weight]:
    """The batch of `keys.samples` on the CPU, and its weight.

    Raises:
        UserError: the data set or the objective returned something else than a batch of that size.
    """
    count = len(keys.samples)
    batch = objective.sample(dataset.items(keys.samples), keys)
    for name, value in batch.items():
        if not isinstance(value, Tensor) or value.shape[:1] != (count,):
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise UserError(
                "data",
                f"{name!r} in a batch of {count} samples is {found}",
                "return tensors whose first dimension counts samples",
            )
    return batch, objective.weight(batch)


def pin(batch: Batch, weight: Weight) -> tuple[Batch, Weight]:
    """The same in pinned memory, from where a copy to the GPU runs beside the host."""
    pinned = {name: value.pin_memory() for name, value in batch.items()}
    return pinned, weight.pin_memory() if isinstance(weight, Tensor) else weight


def to_device(batch: Batch, weight: Weight, device: torch.device) -> tuple[Batch, Weight]:
    """The same on `device`; does not wait for copies from pinned memory."""
    moved = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    if isinstance(weight, Tensor):
        weight = weight.to(device, non_blocking=True)
    return moved, weight
