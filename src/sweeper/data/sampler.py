"""Which samples a step trains on, and which of them belong to which rank and micro-batch."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from sweeper.data.keyed import permutation
from sweeper.errors import UserError


class GlobalSampler:
    """The global batch of each step: a new order every epoch, without gaps or repeats at its end.

    A batch that an epoch's end cuts is filled from the next epoch, so every batch is full and no
    sample is lost or shown twice in one epoch. A batch may hold several epochs; a sample that is
    twice in one batch then meets the same draws, which are keyed by (seed, step, sample). The batch
    is a function of the step alone, so a run resumes from a step number, and every split over ranks
    sees the same samples in the same order.

    Args:
        length: samples in the data set.
        batch: global batch, samples.
        seed: of the orders.
    """

    def __init__(self, length: int, batch: int, seed: int) -> None:
        if length < 1:
            raise UserError("data", "the data set is empty", "choose another data set or split")
        if batch < 1:
            raise UserError("batch.size", f"{batch} is not possible", "use batch.size=1 or more")
        self.length = length
        self.batch = batch
        self.seed = seed
        self._orders: dict[int, Tensor] = {}
        self._lock = threading.Lock()

    def _order(self, epoch: int) -> Tensor:
        with self._lock:  # threads of one loader share the sampler
            if epoch not in self._orders:
                # Steps come in sequence: only the epoch before is asked for again, if any.
                self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1}
                self._orders[epoch] = permutation(self.length, self.seed, "order", epoch)
            return self._orders[epoch]

    def indices(self, step: int) -> Tensor:
        """(batch,) int64: positions in the data set of the step's global batch."""
        parts = []
        position, end = step * self.batch, (step + 1) * self.batch
        while position < end:
            epoch, start = divmod(position, self.length)
            stop = min(self.length, start + end - position)
            parts.append(self._order(epoch)[start:stop])
            position += stop - start
        return torch.cat(parts)


def rank_share(indices: Tensor, rank: int, world_size: int, accumulation: int = 1) -> list[Tensor]:
    """The micro-batches of one rank.

    The batch is cut into contiguous shares, one a rank, and each share into contiguous
    micro-batches. Where a number does not divide, the first parts are longer by one, so that no
    sample is left out; a part may then be empty.

    Args:
        indices: (batch,) int64.
        rank: 0 .. world_size - 1.
        world_size: number of ranks.
        accumulation: number of micro-batches.

    Returns:
        `accumulation` tensors (n,) int64.
    """
    share = torch.tensor_split(indices, world_size)[rank]
    return list(torch.tensor_split(share, accumulation))
