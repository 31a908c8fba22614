"""A figure before and after it is drawn, and the reason where there is nothing to draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Drawing:
    """What a figure's function returns.

    Attributes:
        canvas: the drawn axes.
        caption: what is shown, against which baseline, on which machine.
        description: the same content in words, for those who cannot see it.
    """

    canvas: Canvas
    caption: str
    description: str


@dataclass(frozen=True)
class Figure:
    """A figure as text: an SVG element without a prologue, whose ids are unique in a page."""

    name: str
    title: str
    caption: str
    description: str
    svg: str


@dataclass(frozen=True)
class Omitted:
    """A figure that these runs cannot give, and why."""

    name: str
    title: str
    reason: str


class NothingToDrawError(Exception):
    """These runs cannot give the figure; the message is the reason."""
