"""The objective of a language model."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from sweeper.data.keyed import Keys
from sweeper.models.objective import Batch, LossSum


class TokenPrediction:
    """Cross-entropy of the next token, summed over the tokens that are not padding.

    Data sets give `tokens` (n, length + 1) int64, padded on the right with `ignore_index`. The
    model maps `input` (n, length) to logits (n, length, vocabulary) and must be causal: padding
    reaches it as token 0, which tokens before it must not see.

    Args:
        ignore_index: marks padding; no token has this number.
    """

    def __init__(self, ignore_index: int = -100) -> None:
        self.ignore_index = ignore_index

    def sample(self, items: Batch, keys: Keys) -> Batch:
        """Nothing is random here; splits `tokens` into `input` and `target`, one place later."""
        tokens = items["tokens"]
        shown = tokens[:, :-1]
        return {
            "input": shown.masked_fill(shown == self.ignore_index, 0),
            "target": tokens[:, 1:].contiguous(),
        }

    def weight(self, batch: Batch) -> Tensor:
        """Scalar int64: number of targets that are not padding."""
        return (batch["target"] != self.ignore_index).sum()

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        """Loss summed over targets that are not padding."""
        logits, target = model(batch["input"]), batch["target"]
        # In float32, whatever the model computes in.
        total = F.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            ignore_index=self.ignore_index,
            reduction="sum",
        )
        return LossSum(total, {})
