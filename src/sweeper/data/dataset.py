"""What a data set is."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from torch import Tensor

from sweeper.errors import UserError
from sweeper.models.objective import Batch

Split = Literal["train", "validation"]


class Dataset(Protocol):
    """Items by position. A config names a class; the program adds `split` to its arguments.

    An image data set returns `image` (n, c, h, w) float32 in [-1, 1] and `label` (n,) int64. Two
    reads of a position give the same item, on every rank.
    """

    def __len__(self) -> int: ...

    def items(self, indices: Tensor) -> Batch:
        """The items at `indices` (n,) int64, as CPU tensors whose first dimension is n."""
        ...


def check_split(split: str) -> None:
    """Refuse an unknown split.

    Raises:
        UserError: it is neither train nor validation.
    """
    if split not in get_args(Split):
        raise UserError("data.split", f"{split!r} is not a split", "use train or validation")
