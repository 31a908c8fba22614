"""Memory by component: what the peak of each configuration is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import baseline, kind_of_memory, machine, sentences, short_labels
from analysis.quantities import Scale, choose
from analysis.study import Floats, Study
from analysis.tables.memory import BESIDE, PARTS

TITLE = "Memory by component"

MOST_BARS = 24

_COLORS = {
    "parameters": style.BLUE,
    "gradients": style.SKY,
    "optimizer": style.GREEN,
    "ema": style.YELLOW,
    "buckets": style.PURPLE,
    "activations": style.VERMILION,
    "data": style.ORANGE,
    "remainder": "#999999",
    "allocator_reserve": "#e4e4e4",
    "context": "#ffffff",
}
_HATCHES = ("", "///", "..", "xxx", "++", "\\\\\\", "o", "", "//", ".")


def _parts(study: Study) -> dict[str, Floats]:
    """Part -> bytes of each configuration, for the parts that any run measured."""
    found = {part: study.mean(f"memory.parts.{part}_bytes") for part in (*PARTS, *BESIDE)}
    return {part: v for part, v in found.items() if np.nan_to_num(v).any()}


def _bars(
    axes: Axes, parts: dict[str, Floats], rows: list[int], scale: Scale, places: Floats
) -> None:
    left = np.zeros(len(rows))
    for part, hatch in zip((*PARTS, *BESIDE), _HATCHES, strict=True):
        if part not in parts:
            continue
        sizes = np.nan_to_num(parts[part][rows]) / scale.divisor
        axes.barh(
            places,
            sizes,
            left=left,
            height=0.72,
            color=_COLORS[part],
            hatch=hatch,
            edgecolor="#333333",
            linewidth=0.5,
            label=part.replace("_", " "),
        )
        left += sizes


def _ends(axes: Axes, study: Study, rows: list[int], scale: Scale, reach: Floats) -> None:
    """The peak at the end of each bar; the status where there is none."""
    peaks = study.mean("peak_bytes")
    status = study.configurations["status"].to_numpy()
    done = study.configurations["completed"].to_numpy() > 0
    for place, row in enumerate(rows):
        text = scale.text(peaks[row]) if peaks[row] == peaks[row] else ""
        if not done[row]:
            text = f"{text} {status[row]}".strip()
        weight: Any = "bold" if not done[row] else "normal"
        axes.annotate(
            text,
            (reach[place], place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight=weight,
        )


def build(study: Study) -> Drawing:
    """One stacked bar for each configuration.

    Raises:
        NothingToDrawError: no run measured its parts.
    """
    parts = _parts(study)
    if not parts:
        raise NothingToDrawError("no run measured the parts of its memory")
    known = np.any([~np.isnan(values) for values in parts.values()], axis=0)
    stopped = study.configurations["status"].isin(["oom"]).to_numpy()
    every = np.flatnonzero(known | stopped).tolist()
    rows = every[:MOST_BARS]
    total = np.sum([np.nan_to_num(values[rows]) for values in parts.values()], axis=0)
    scale = choose("bytes", study.mean("peak_bytes")[rows])
    canvas, axes = style.canvas(1.35 + 0.27 * len(rows))
    places = np.arange(len(rows), dtype=np.float64)
    _bars(axes, parts, rows, scale, places)
    _ends(axes, study, rows, scale, total / scale.divisor)
    labels = [style.shorten(name) for name in short_labels(study, rows)]
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 1.12 * float(total.max()) / scale.divisor or 1)
    axes.set_xlabel(f"peak memory of one device ({scale.unit})")
    style.legend_below(axes, columns=6)
    some = f"The first {len(rows)} of {len(every):,} configurations." if rows != every else ""
    beside = [p.replace("_", " ") for p in BESIDE if p in parts]
    held = f"{' and '.join(beside)} lie beyond the peak: held, not handed out." if beside else ""
    return Drawing(
        canvas,
        sentences(
            "Peak of the steady state by component; the figure at the end of a bar is the peak.",
            held[:1].upper() + held[1:],
            some,
            baseline(study),
            machine(study, rows),
            kind_of_memory(study),
        ),
        "Stacked bars of " + ", ".join(p.replace("_", " ") for p in parts) + " for "
        f"{len(rows)} configurations; the same figures are in the table of memory by component.",
    )
