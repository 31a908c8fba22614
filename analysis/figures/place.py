"""Labels beside points, none upon another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

# Distances from the point that are tried, in points of type.
_DISTANCES = (7, 13, 21, 31, 43, 57)
_DIRECTIONS = (45, 135, -45, -135, 90, -90, 0, 180, 20, 160, -20, -160)

Pixel = tuple[float, float]


def _side(angle: float) -> tuple[str, str, tuple[float, float]]:
    """Alignment of a label in this direction, and the place of its box that is nearest."""
    x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    horizontal, near_x = (
        ("left", 0.0) if x > 0.3 else ("right", 1.0) if x < -0.3 else ("center", 0.5)
    )
    vertical, near_y = ("bottom", 0.0) if y > 0.3 else ("top", 1.0) if y < -0.3 else ("center", 0.5)
    return horizontal, vertical, (near_x, near_y)


def _along(corners: Sequence[Pixel], spacing: float) -> list[Pixel]:
    """Pixels along a line, no farther apart than `spacing`."""
    found: list[Pixel] = []
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        count = max(2, math.ceil(math.hypot(x1 - x0, y1 - y0) / spacing))
        xs, ys = np.linspace(x0, x1, count), np.linspace(y0, y1, count)
        found += zip(xs.tolist(), ys.tolist(), strict=True)
    return found


class _Ground:
    """What of the diagram is taken, in pixels."""

    def __init__(self, axes: Axes, size: float) -> None:
        figure = axes.get_figure(root=True)
        assert figure is not None
        self.axes, self.size = axes, size
        self.pixel = figure.dpi / 72
        self.inside = axes.get_window_extent().padded(4)
        self.boxes: list[Bbox] = []
        self.line: list[Pixel] = []
        self.renderer = cast(Any, figure.canvas).get_renderer()

    def place(self, point: Pixel) -> Pixel:
        x, y = self.axes.transData.transform(point)
        return float(x), float(y)

    def take(self, point: Pixel) -> None:
        (x, y), half = self.place(point), 4 * self.pixel
        self.boxes.append(Bbox.from_extents(x - half, y - half, x + half, y + half))

    def free(self, box: Bbox, own: int, leader: Sequence[Pixel]) -> bool:
        """Whether a text fits into `box`, with a line to its own point."""
        if not (self.inside.x0 <= box.x0 and box.x1 <= self.inside.x1):
            return False
        if not (self.inside.y0 <= box.y0 and box.y1 <= self.inside.y1):
            return False
        others = [other for number, other in enumerate(self.boxes) if number != own]
        if any(box.overlaps(other) for other in others):
            return False
        if any(box.contains(*pixel) for pixel in self.line):
            return False
        return not any(other.contains(*pixel) for other in others for pixel in leader)

    def write(self, point: Pixel, text: str, own: int) -> bool:
        """Write the text at the first place that is free."""
        for distance in _DISTANCES:
            for angle in _DIRECTIONS:
                label, box, leader = self._try(point, text, distance, angle)
                if self.free(box, own, leader):
                    self.boxes.append(box)
                    return True
                label.remove()
        return False

    def _try(
        self, point: Pixel, text: str, distance: float, angle: float
    ) -> tuple[Annotation, Bbox, list[Pixel]]:
        horizontal, vertical, near = _side(angle)
        far = distance > _DISTANCES[0]
        arrow = {"arrowstyle": "-", "lw": 0.6, "color": "#6b6b6b", "shrinkA": 0, "shrinkB": 4}
        label = self.axes.annotate(
            text,
            point,
            (distance * math.cos(math.radians(angle)), distance * math.sin(math.radians(angle))),
            textcoords="offset points",
            ha=horizontal,
            va=vertical,
            fontsize=self.size,
            arrowprops={**arrow, "relpos": near} if far else None,
        )
        label.update_positions(self.renderer)
        box = Text.get_window_extent(label, self.renderer)
        end = (box.x0 + near[0] * box.width, box.y0 + near[1] * box.height)
        return label, box, _along([end, self.place(point)], 3 * self.pixel) if far else []


def place_labels(
    axes: Axes,
    points: Sequence[Pixel],
    texts: Sequence[str],
    taken: Sequence[Pixel] = (),
    line: Sequence[Pixel] = (),
    size: float = 8,
) -> list[str]:
    """Write each text beside its point where there is room.

    The figure's layout must be final: places are found in pixels.

    Args:
        points: where the texts belong, in data coordinates.
        taken: other points that must stay visible.
        line: corners of a line that no text may cross.

    Returns:
        The texts for which there was no room.
    """
    ground = _Ground(axes, size)
    for point in (*points, *taken):
        ground.take(point)
    if len(line) > 1:
        ground.line = _along([ground.place(corner) for corner in line], 3 * ground.pixel)
    numbered = enumerate(zip(points, texts, strict=True))
    return [text for own, (point, text) in numbered if not ground.write(point, text, own)]
