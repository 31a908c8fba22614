"""Made-up images of any size, for measuring without a data set; a model can still learn them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sweeper.data.dataset import Split, check_split
from sweeper.data.keyed import Keys, derive_seed
from sweeper.errors import UserError
from sweeper.models.objective import Batch

COARSE = 4  # side of a class's pattern, pixels
NOISE = 0.25  # standard deviation of what tells images of one class apart


class Synthetic:
    """Each class has a smooth random pattern; an image is its class's pattern plus noise.

    Images are made when asked for and nothing of their size is kept. They depend on the split and
    the position alone, the same for every seed. Labels go round: position modulo `num_classes`.

    Args:
        split: "train" or "validation": same patterns, different noise.
        size: height and width of the images, pixels.
        channels: channels of the images.
        num_classes: labels.
        length: images in each split.
    """

    def __init__(
        self,
        split: Split,
        size: int = 32,
        channels: int = 4,
        num_classes: int = 1000,
        length: int = 50_000,
    ) -> None:
        check_split(split)
        numbers = {
            "size": size,
            "channels": channels,
            "num_classes": num_classes,
            "length": length,
        }
        for name, value in numbers.items():
            if value < 1:
                raise UserError(f"data.{name}", f"{value} is not possible", "use 1 or more")
        self.size = size
        self.length = length
        self.num_classes = num_classes
        self.seed = derive_seed("synthetic", split)
        classes = Keys(derive_seed("synthetic"), 0, torch.arange(num_classes))
        self.patterns = 0.5 * classes.normal("pattern", (channels, COARSE, COARSE))

    def __len__(self) -> int:
        return self.length

    def items(self, indices: Tensor) -> Batch:
        """`image` (n, channels, size, size) float32 in [-1, 1], `label` (n,) int64."""
        label = indices % self.num_classes
        pattern = F.interpolate(self.patterns[label], self.size, mode="bilinear")
        noise = Keys(self.seed, 0, indices).normal("noise", tuple(pattern.shape[1:]))
        image = noise.mul_(NOISE).add_(pattern).clamp_(-1, 1)
        return {"image": image, "label": label}
