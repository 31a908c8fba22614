"""Real images that need no download: the handwritten digits that come with scikit-learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sweeper.data.dataset import Split, check_split
from sweeper.data.keyed import permutation
from sweeper.errors import UserError
from sweeper.models.objective import Batch


class Digits:
    """1,797 grey 8x8 images of the digits 0 to 9 (UCI "Optical Recognition of Handwritten Digits").

    The split is a fixed shuffle, the same for every seed. Images are resized once, when loaded.

    Args:
        split: "train" or "validation".
        size: height and width of the images, pixels; resized bilinearly where it is not 8.
        channels: the grey value is repeated this often.
        validation_fraction: share of the images held out.
    """

    def __init__(
        self,
        split: Split,
        size: int = 8,
        channels: int = 1,
        validation_fraction: float = 0.2,
    ) -> None:
        if size < 1 or channels < 1:
            raise UserError(
                "data.size", f"images of {channels}x{size}x{size} are not possible", "use 1 or more"
            )
        if not 0 < validation_fraction < 1:
            raise UserError(
                "data.validation_fraction",
                f"{validation_fraction} leaves one split empty",
                "use a share between 0 and 1",
            )
        check_split(split)
        pixels, labels = _read()
        order = permutation(len(labels), "digits")
        held_out = max(1, round(len(labels) * validation_fraction))
        chosen = order[:held_out] if split == "validation" else order[held_out:]
        images = pixels[chosen, None] / 8 - 1  # 0 .. 16 to [-1, 1]
        if size != images.shape[-1]:
            images = F.interpolate(images, size, mode="bilinear", antialias=True)
        self.images = images.clamp(-1, 1)  # one channel: repeating it is left to `items`
        self.labels = labels[chosen]
        self.channels = channels

    def __len__(self) -> int:
        return len(self.labels)

    def items(self, indices: Tensor) -> Batch:
        """`image` (n, channels, size, size) float32 in [-1, 1], `label` (n,) int64."""
        images = self.images[indices]
        return {
            "image": images.repeat(1, self.channels, 1, 1),
            "label": self.labels[indices],
        }


def _read() -> tuple[Tensor, Tensor]:
    """Pixels (1797, 8, 8) float32 in 0 .. 16 and labels (1797,) int64.

    Read from the package's file: importing scikit-learn would cost each rank a second or more.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise UserError("data", "scikit-learn is not installed", "pip install scikit-learn")
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].long()
