"""Memory against throughput, and the configurations that no other one beats in both."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from analysis.axes import Codes, codes, combine, text
from analysis.cells import plain
from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import (
    baseline,
    kind_of_memory,
    machine,
    processes,
    sentences,
    short_labels,
)
from analysis.figures.place import place_labels
from analysis.quantities import Scale, choose
from analysis.study import CONTEXT, Floats, Study

TITLE = "Memory against throughput"

MOST_PANELS = 4
MOST_LABELS = 12

# Characters of a label in the diagram.
LONGEST = 40


def front(memory: Floats, rate: Floats) -> npt.NDArray[np.bool_]:
    """The points of the Pareto front: less memory costs throughput, more throughput costs memory.

    Of equal points all are on it.
    """
    order = np.lexsort((memory, -rate))
    on = np.zeros(len(memory), dtype=np.bool_)
    least = np.inf
    for i in order.tolist():
        if memory[i] < least:
            on[i] = True
            least = memory[i]
    same = {(memory[i], rate[i]) for i in np.flatnonzero(on).tolist()}
    return np.array([(m, r) in same for m, r in zip(memory, rate, strict=True)], dtype=np.bool_)


def _groups(study: Study, rows: Codes) -> list[Codes]:
    """Rows that may be compared: one machine, software, model, data set, kind of memory each."""
    shown = study.configurations.iloc[rows]
    keys = [*CONTEXT, "peak_kind"]
    keys += [f"axis.{a}" for a in ("model", "data") if study.axis(a) is not None]
    group = combine((codes(shown[key]) for key in keys), len(rows))
    found = [rows[group == g] for g in range(int(group.max(initial=-1)) + 1)]
    return sorted((g for g in found if len(g) > 1), key=len, reverse=True)


def _kinds(study: Study, rows: Codes) -> tuple[str, list[str]]:
    """What marker and colour tell: the first technique that varies among the rows."""
    for axis in study.axes:
        values = study.configurations[f"axis.{axis.name}"].iloc[rows]
        if axis.name not in ("gpus", "model", "data") and 1 < values.nunique() <= style.MOST_LINES:
            return axis.name, [plain(text(v)) for v in values]
    return "", ["run"] * len(rows)


def _panel(axes: Axes, study: Study, rows: Codes, scale: Scale) -> npt.NDArray[np.bool_]:
    memory = study.mean("peak_bytes")[rows] / scale.divisor
    rate = study.mean("time.samples_per_s")[rows]
    on = front(memory, rate)
    ends = np.flatnonzero(on)[np.argsort(rate[on])]
    # A step: for a throughput between two points one needs the memory of the faster one.
    axes.step(
        rate[ends],
        memory[ends],
        where="pre",
        color=style.GREY,
        lw=1.1,
        ls="--",
        label="Pareto front",
        zorder=1,
    )
    name, kinds = _kinds(study, rows)
    for number, kind in enumerate(dict.fromkeys(kinds)):
        mine = np.array([k == kind for k in kinds])
        look: dict[str, Any] = {
            "marker": style.MARKERS[number],
            "s": 42.0,
            "zorder": 3.0,
            "linewidths": 1.3,
        }
        colour = style.COLORS[number]
        label = f"{name}={kind}" if name else None
        filled = label if (mine & on).any() else None
        axes.scatter(rate[mine & on], memory[mine & on], color=colour, label=filled, **look)
        axes.scatter(
            rate[mine & ~on],
            memory[mine & ~on],
            facecolors="none",
            edgecolors=colour,
            label=None if (mine & on).any() else label,
            **look,
        )
    axes.set_xlabel("throughput (samples per s)")
    axes.set_ylabel(f"peak memory ({scale.unit})")
    axes.margins(0.16, 0.16)
    axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    return on


def _corners(rate: Floats, memory: Floats) -> list[tuple[float, float]]:
    """The corners of the step that joins the points."""
    corners = [(float(rate[0]), float(memory[0]))]
    for x, y in zip(rate[1:].tolist(), memory[1:].tolist(), strict=True):
        corners += [(corners[-1][0], y), (x, y)]
    return corners


def _label_front(
    axes: Axes, study: Study, rows: Codes, on: npt.NDArray[np.bool_], scale: Scale
) -> int:
    """Name the points of the front; returns how many have no name for lack of room."""
    memory = study.mean("peak_bytes")[rows] / scale.divisor
    rate = study.mean("time.samples_per_s")[rows]
    labels = dict(
        zip(rows.tolist(), short_labels(study, rows.tolist(), context=False), strict=True)
    )
    if on.sum() > 1 and max(len(labels[row]) for row in rows[on].tolist()) > LONGEST:
        # Too long for the diagram: only what differs along the front.
        along = rows[on].tolist()
        labels |= dict(zip(along, short_labels(study, along, context=False), strict=True))
    ends = np.flatnonzero(on)[np.argsort(rate[on])].tolist()
    if len(ends) > MOST_LABELS:
        chosen = np.unique(np.linspace(0, len(ends) - 1, MOST_LABELS).round().astype(int))
        ends_named = [ends[i] for i in chosen.tolist()]
    else:
        ends_named = ends
    left = place_labels(
        axes,
        [(rate[i], memory[i]) for i in ends_named],
        [style.shorten(labels[int(rows[i])], LONGEST) for i in ends_named],
        taken=[(rate[i], memory[i]) for i in range(len(rows)) if i not in ends_named],
        line=_corners(rate[ends], memory[ends]),
    )
    return len(ends) - len(ends_named) + len(left)


def build(study: Study) -> Drawing:
    """One diagram for each machine, software, model, data set and kind of memory.

    Raises:
        NothingToDrawError: there are no two comparable runs that measured both.
    """
    both = ~np.isnan(study.mean("peak_bytes")) & ~np.isnan(study.mean("time.samples_per_s"))
    done = study.configurations["completed"].to_numpy() > 0
    groups = _groups(study, np.flatnonzero(both & done))
    if not groups:
        raise NothingToDrawError(
            "no two completed configurations of one model and machine measured both"
        )
    shown = groups[:MOST_PANELS]
    canvas, places = style.panels(3.8 * len(shown), rows=len(shown))
    panels = []
    for axes, rows in zip(places, shown, strict=True):
        scale = choose("bytes", study.mean("peak_bytes")[rows])
        on = _panel(axes, study, rows, scale)
        if len(groups) > 1:
            axes.set_title(style.shorten(_title(study, rows), 90), loc="left")
        style.legend_below(axes, columns=4)
        panels.append((axes, rows, on, scale))
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")
    nameless = sum(_label_front(axes, study, rows, on, scale) for axes, rows, on, scale in panels)
    every = np.concatenate(shown).tolist()
    labels = study.labels()
    best = [plain(labels[i]) for _, rows, on, _ in panels for i in rows[on].tolist()]
    rest = len(groups) - len(shown)
    return Drawing(
        canvas,
        sentences(
            "Down and right is better. Filled points are on the Pareto front: no other "
            "configuration has both less memory and more throughput.",
            f"{nameless} of its points are not named for lack of room." if nameless else "",
            f"The {len(shown)} largest of {len(groups)} groups that may be compared."
            if rest
            else "",
            baseline(study),
            machine(study, every),
            processes(study, every),
            kind_of_memory(study),
        ),
        f"Scatter of peak memory over throughput; on the Pareto front: {style.names(best, 12)}.",
    )


def _title(study: Study, rows: Codes) -> str:
    first = study.configurations.iloc[int(rows[0])]
    names = [f"axis.{a}" for a in ("model", "data") if study.axis(a) is not None]
    values = [first[n] for n in (*names, "machine")]
    told = ", ".join(plain(text(v)) for v in values if v is not None)
    return told if first["source"] == "measured" else f"{told} ({first['source']})"
