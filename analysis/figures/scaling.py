"""Speed-up over the number of GPUs, beside the ideal line."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import machine, processes, sentences, short_labels
from analysis.scaling import Curves, curves
from analysis.study import Study

TITLE = "Scaling with GPUs"

_WITHOUT = ("gpus", "batch.size", "batch.per_gpu")


def _lines(found: Curves) -> list[list[int]]:
    """The rows of each curve that has a run on 1 GPU and another one, by number of GPUs."""
    lines = []
    order = np.flatnonzero((found.curve >= 0) & np.isfinite(found.speed_up))
    order = order[np.argsort(found.curve[order], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(found.curve[order])) + 1):
        rows = rows[np.argsort(found.gpus[rows], kind="stable")]
        if len(np.unique(found.gpus[rows])) > 1 and found.gpus[rows][0] == 1:
            lines.append(rows.tolist())
    return lines


def _panel(axes: Axes, study: Study, found: Curves, lines: list[list[int]]) -> None:
    shown = lines[: style.MOST_LINES]
    names = short_labels(study, [rows[0] for rows in shown], without=_WITHOUT)
    if len(shown) == 1:
        names = ["measured"]
    every = [row for rows in shown for row in rows]
    gpus = np.unique(found.gpus[every])
    axes.plot(gpus, gpus, color=style.GREY, ls=(0, (1, 1)), lw=1.4, label="ideal")
    for number, (rows, name) in enumerate(zip(shown, names, strict=True)):
        axes.plot(
            found.gpus[rows],
            found.speed_up[rows],
            label=style.shorten(name, 36),
            **style.line(number),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_locator(FixedLocator(gpus.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
    axes.set_xlabel("GPUs")
    kept = "global batch kept" if found.kind == "strong" else "batch per GPU kept"
    axes.set_title(f"{found.kind} scaling ({kept})", loc="left")


def build(study: Study) -> Drawing:
    """Strong and weak scaling side by side, where both were run.

    Raises:
        NothingToDrawError: the number of GPUs does not vary, or no curve has a run on 1 GPU.
    """
    if study.axis("gpus") is None:
        raise NothingToDrawError("the number of GPUs does not vary")
    found = [curves(study, "strong"), curves(study, "weak")]
    panels = [(one, _lines(one)) for one in found]
    panels = [(one, lines) for one, lines in panels if lines]
    if not panels:
        raise NothingToDrawError("no completed run on 1 GPU that agrees in all else with another")
    most = max(min(len(lines), style.MOST_LINES) for _, lines in panels)
    below = most + 1 if len(panels) > 1 else (most + 3) // 3
    canvas, places = style.panels(3.6 + 0.2 * below, columns=len(panels))
    for axes, (one, lines) in zip(places, panels, strict=True):
        _panel(axes, study, one, lines)
        axes.set_ylabel("speed-up over 1 GPU (times)")
        style.legend_below(axes, columns=3 if len(panels) == 1 else 1)
    every = sorted({row for _, lines in panels for rows in lines for row in rows})
    cut = [
        f"{style.MOST_LINES} of {len(lines):,} {one.kind} curves are drawn."
        for one, lines in panels
        if len(lines) > style.MOST_LINES
    ]
    points = [
        f"{one.gpus[rows[-1]]:.0f} GPUs {one.speed_up[rows[-1]]:.2f} times ({one.kind})"
        for one, lines in panels
        for rows in lines[: style.MOST_LINES]
    ]
    return Drawing(
        canvas,
        sentences(
            "Speed-up: samples per s over those of the run on 1 GPU that agrees in all else; both "
            "axes are logarithmic.",
            *cut,
            machine(study, every),
            processes(study, every),
        ),
        f"Lines of speed-up over GPUs, ending at: {'; '.join(points)}.",
    )
