"""Checks that models and objectives share; each names the key to change."""

from __future__ import annotations

from torch import Tensor

from sweeper.errors import UserError


def check_divides(key: str, part: int, whole_key: str, whole: int) -> None:
    """Refuse a part that does not divide the whole.

    Raises:
        UserError: it does not.
    """
    if part < 1 or whole % part:
        raise UserError(
            key,
            f"{part} does not divide {whole_key}={whole}",
            f"use {key}=... and {whole_key}=... that divide",
        )


def check_share(key: str, value: float) -> None:
    """Refuse what is not a share of a whole.

    Raises:
        UserError: the value is not within [0, 1].
    """
    if not 0 <= value <= 1:
        raise UserError(key, f"{value} is not a share", "use a value from 0 to 1")


def check_image_shape(image: Tensor, expected: tuple[int, int, int]) -> None:
    """Refuse images (n, channels, height, width) of another shape; looks at the shape alone.

    Raises:
        UserError: it differs from `expected`.
    """
    found = tuple(image.shape[1:])
    if found != expected:
        raise UserError(
            "data",
            f"its images have shape {found}, but the model takes {expected}",
            "set data.size and data.channels, or model.input_size and model.in_channels",
        )


def check_labels(label: Tensor, num_classes: int) -> None:
    """Refuse labels (n,) that a model does not know; on a GPU they would end the process.

    Raises:
        UserError: a label is not in [0, num_classes).
    """
    lowest, highest = (int(end) for end in label.aminmax())
    if lowest < 0:
        raise UserError("data", f"it has label {lowest}", "count labels from 0")
    if highest >= num_classes:
        raise UserError(
            "model.num_classes",
            f"the data has label {highest}, but there are {num_classes} classes",
            f"use model.num_classes={highest + 1} or more",
        )
