"""How all figures look: legible in print, and told apart without colour.

Colours are those of Okabe and Ito, Color Universal Design (2008); beside them every line has a
marker and a dash pattern of its own, every bar a hatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

BLACK, GREY = "#000000", "#6b6b6b"
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 2)),
    (0, (6, 1)),
)
# Lines that one diagram can hold and still be read.
MOST_LINES = len(COLORS)

# Characters of a legend in an inch, and what its line sample takes in characters.
_CHARACTERS, _HANDLE = 15, 8

# Width of the text on a printed page, inches.
WIDTH = 7.2

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # a config value with two $ in it is no formula
}


def canvas(height: float, rows: int = 1, **options: Any) -> tuple[Canvas, Any]:
    """An empty figure of the page's width and its axes, as `subplots` gives them.

    Args:
        height: in inches.
    """
    figure = Canvas(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, **options)


def panels(height: float, rows: int = 1, columns: int = 1) -> tuple[Canvas, list[Axes]]:
    """An empty figure of panels, each with room for a legend of its own."""
    figure = Canvas(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    grid = figure.subfigures(rows, columns, squeeze=False)
    return figure, [part.subplots() for part in grid.ravel()]


def line(index: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line with this number."""
    place = index % MOST_LINES
    return {"color": COLORS[place], "marker": MARKERS[place], "linestyle": DASHES[place]}


def legend_below(axes: Axes, columns: int = 3) -> None:
    """The legend under the diagram, where it hides nothing; it reads row by row."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    part: Any = axes.get_figure()
    room = part.bbox.width / axes.get_figure(root=True).dpi * _CHARACTERS  # type: ignore[union-attr]  # axes lie in a figure
    widest = max(len(label) for label in labels) + _HANDLE
    columns = max(1, min(columns, len(labels), int(room / widest)))
    # matplotlib fills columns; this order makes rows of it.
    order = [i for start in range(columns) for i in range(start, len(labels), columns)]
    part.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside lower left",
        ncols=columns,
        columnspacing=1.4,
        handlelength=2.6,
    )


def shorten(text: str, most: int = 48) -> str:
    """A label cut in its middle, where both ends say something."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - most :]}"


def in_style() -> Any:
    """Inside this context matplotlib draws as above; outside nothing is changed."""
    return rc_context(_SETTINGS)


def names(items: Sequence[str], most: int = 4) -> str:
    """`a, b, c and 3 more`."""
    some = ", ".join(items[:most])
    return f"{some} and {len(items) - most:,} more" if len(items) > most else some
