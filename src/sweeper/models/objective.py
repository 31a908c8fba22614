"""What binds a model to a loss and a batch.

An objective is any object with the three functions below; `conf/model/*.yaml` names it beside the
model. A batch is a dict of tensors whose first dimension counts samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from sweeper.data.keyed import Keys

Batch = dict[str, Tensor]


@dataclass
class LossSum:
    """The loss of one micro-batch, not yet divided.

    Attributes:
        total: scalar tensor, the sum of the losses over the micro-batch's units.
        metrics: further scalar sums over units, detached, for logging.
    """

    total: Tensor
    metrics: dict[str, Tensor]


class Objective(Protocol):
    def sample(self, items: Batch, keys: Keys) -> Batch:
        """Everything random: noise, timesteps, dropped labels; on the CPU, keyed by sample.

        `items` is what the dataset returned for `keys.samples`; the result has the same first
        dimension. Drawing only from `keys` makes the loss independent of how a batch is split over
        ranks and micro-batches.
        """
        ...

    def weight(self, batch: Batch) -> int | Tensor:
        """Number of units (samples, tokens) that `loss` sums over.

        An int where it is known from the shape; a scalar tensor where it depends on the data, e.g.
        the number of tokens that are not padding.
        """
        ...

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        """Forward pass and loss, summed over units; no host synchronisation (`.item()`)."""
        ...
