"""The objective of an image classifier."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from sweeper.data.keyed import Keys
from sweeper.models.checks import check_labels, check_share
from sweeper.models.objective import Batch, LossSum


class Classification:
    """Cross-entropy between logits (n, num_classes) and `label` (n,), summed over samples.

    Args:
        num_classes: labels the model knows, to refuse data that has more; None = do not check.
        label_smoothing: share of each target spread evenly over all classes.
    """

    def __init__(self, num_classes: int | None = None, label_smoothing: float = 0.0) -> None:
        check_share("model.objective.label_smoothing", label_smoothing)
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing

    def sample(self, items: Batch, keys: Keys) -> Batch:
        """Nothing is random here.

        Raises:
            UserError: a label that the model does not know.
        """
        if self.num_classes is not None:
            check_labels(items["label"], self.num_classes)
        return items

    def weight(self, batch: Batch) -> int:
        """Number of samples."""
        return batch["image"].shape[0]

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        """Loss summed over samples; metric `correct` counts right answers."""
        logits, label = model(batch["image"]), batch["label"]
        # In float32, whatever the model computes in.
        total = F.cross_entropy(
            logits.float(), label, reduction="sum", label_smoothing=self.label_smoothing
        )
        correct = (logits.detach().argmax(dim=1) == label).sum()
        return LossSum(total, {"correct": correct})
