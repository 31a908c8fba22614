"""How much a step's whole batch weighs, where a rank can know it without asking the others."""

from __future__ import annotations

import torch

from sweeper.data.loader import StepBatch
from sweeper.errors import UserError
from sweeper.ranks import Ranks


class GlobalWeight:
    """Units of the global batch of each step, or None where the ranks have to add theirs up.

    Most objectives weigh by samples, and every rank knows how many there are in all. An int can be
    something else that a rank knows of its own share alone, such as the padded length. Which of the
    two it is, the ranks agree on in their first step: some asking and others not would hang.

    Args:
        ranks: of the run.
        device: of this rank.
        global_batch: samples of a step over all ranks.
    """

    def __init__(self, ranks: Ranks, device: torch.device, global_batch: int) -> None:
        self._ranks, self._device, self._global_batch = ranks, device, global_batch
        self._by_samples: bool | None = None

    def __call__(self, batch: StepBatch) -> int | None:
        """Of one step; the first call of a run with several ranks is a collective one.

        Raises:
            UserError: the objective weighed by samples before, and does not any more.
        """
        known = [weight for weight in batch.weights if isinstance(weight, int)]
        if self._ranks.count == 1:
            return sum(known) if len(known) == len(batch.weights) else None
        samples = [len(next(iter(one.values()))) for one in batch.micro_batches]
        by_samples = known == samples
        if self._by_samples is None:
            self._by_samples = self._ranks.all_true(by_samples, self._device)
        if self._by_samples and not by_samples:
            raise UserError(
                "model.objective",
                f"weighs {batch.weights} for {samples} samples, and weighed by samples before",
                "let its weight return a tensor where it depends on more than the samples",
            )
        return self._global_batch if self._by_samples else None
