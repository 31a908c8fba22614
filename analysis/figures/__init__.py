"""All figures, in the order in which a report shows them.

A figure is a function from a study to a drawing, in a file of its own; where the runs cannot give
it, it raises `NothingToDrawError` with the reason. Importing this package imports matplotlib.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import matplotlib as mpl

from analysis.figures import batch, loss, memory, scaling, style, tradeoff, utilization
from analysis.figures.figure import Drawing, Figure, NothingToDrawError, Omitted
from analysis.study import Study

# Name of the figure -> the module with its TITLE and `build`.
FIGURES: dict[str, ModuleType] = {
    "memory": memory,
    "tradeoff": tradeoff,
    "loss": loss,
    "scaling": scaling,
    "utilization": utilization,
    "batch": batch,
}

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^")]+)')


def _svg(name: str, drawing: Drawing) -> str:
    """The SVG element alone, the same bytes for the same drawing, with ids of its own."""
    # Laid out once: savefig would do it twice.
    drawing.canvas.draw_without_rendering()
    drawing.canvas.set_layout_engine("none")
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        drawing.canvas.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = _ID.sub(rf'id="{name}-\1"', svg)
    return _REFERENCE.sub(rf"\g<1>{name}-\2", svg)


def draw(name: str, study: Study) -> Figure | Omitted:
    """One figure, or why these runs cannot give it."""
    module = FIGURES[name]
    build: Callable[[Study], Drawing] = module.build
    try:
        with style.in_style():
            drawing = build(study)
            return Figure(
                name, module.TITLE, drawing.caption, drawing.description, _svg(name, drawing)
            )
    except NothingToDrawError as nothing:
        return Omitted(name, module.TITLE, str(nothing))


def draw_all(study: Study) -> list[Figure | Omitted]:
    """Every figure, or the reason why it is missing."""
    if not len(study.configurations):
        return [Omitted(name, m.TITLE, "there are no runs") for name, m in FIGURES.items()]
    return [draw(name, study) for name in FIGURES]


def save(name: str, study: Study, path: Path) -> bool:
    """Write one figure in the format of the path's ending; False where there is nothing to draw."""
    try:
        with style.in_style():
            FIGURES[name].build(study).canvas.savefig(path, dpi=160)
    except NothingToDrawError:
        return False
    return True
