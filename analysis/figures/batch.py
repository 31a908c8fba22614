"""Batch against memory, with the memory that the device has."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.advice.batch_axes import BATCH_AXES, micro_batches
from analysis.advice.limits import limits
from analysis.axes import codes, combine
from analysis.baseline import others
from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import kind_of_memory, machine, sentences, short_labels
from analysis.quantities import Scale, choose
from analysis.study import CONTEXT, Study

TITLE = "Batch against memory"

# A limit farther away than this many times the largest peak would flatten the diagram.
FAR = 3.0


def lines(study: Study) -> list[list[int]]:
    """Configurations that differ in batch and accumulation alone, by micro-batch."""
    named = [axis for axis in study.axes if axis.name in BATCH_AXES]
    count = len(study.configurations)
    context = [codes(study.configurations[name]) for name in CONTEXT]
    group = combine([*others(study, named), *context], count)
    micro = micro_batches(study)
    known = ~np.isnan(micro)
    peak = study.mean("peak_bytes")
    stopped = study.configurations["status"].eq("oom").to_numpy()
    found = []
    order = np.flatnonzero(known)
    order = order[np.argsort(group[order], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        rows = rows[~np.isnan(peak[rows]) | stopped[rows]]
        if len(np.unique(micro[rows])) > 1 and not np.isnan(peak[rows]).all():
            found.append(rows[np.argsort(micro[rows], kind="stable")].tolist())
    return found


def _line(axes: Axes, study: Study, rows: list[int], name: str, number: int, scale: Scale) -> None:
    micro, peak = micro_batches(study), study.mean("peak_bytes") / scale.divisor
    status = study.configurations["status"].to_numpy()
    done = [r for r in rows if status[r] == "completed" and peak[r] == peak[r]]
    look = style.line(number)
    axes.plot(micro[done], peak[done], label=style.shorten(name, 40), **look)
    for row in rows:
        if status[row] == "oom":
            edge = limits(study)[row] / scale.divisor
            height = edge if edge == edge else np.nanmax(peak[done], initial=0.0)
            axes.plot(
                micro[row], height, marker="X", ms=10, mec="white", color=look["color"], ls="none"
            )
            axes.annotate(
                "oom",
                (micro[row], height),
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=look["color"],
            )


def build(study: Study) -> Drawing:
    """One line for each set of configurations that differ in batch and accumulation alone.

    Raises:
        NothingToDrawError: the micro-batch does not vary on its own.
    """
    found = lines(study)
    if not found:
        raise NothingToDrawError("the batch per device does not vary with all else equal")
    shown = sorted(found, key=len, reverse=True)[: style.MOST_LINES]
    every = [row for rows in shown for row in rows]
    peaks = study.mean("peak_bytes")[every]
    scale = choose("bytes", peaks)
    canvas, axes = style.canvas(3.9)
    names = short_labels(study, [rows[0] for rows in shown], without=BATCH_AXES)
    for number, (rows, name) in enumerate(zip(shown, names, strict=True)):
        _line(axes, study, rows, name if len(shown) > 1 else "peak memory", number, scale)
    told = []
    stopped = study.configurations["status"].iloc[every].eq("oom").any()
    for size in np.unique(limits(study)[every][~np.isnan(limits(study)[every])]).tolist():
        amount = choose("bytes", np.array([size]))
        words = f"{amount.text(size)} {amount.unit}"
        if stopped or size <= FAR * np.nanmax(peaks):
            axes.axhline(size / scale.divisor, color=style.BLACK, ls="--", lw=1.3)
            axes.annotate(
                f"limit {words}",
                (0, size / scale.divisor),
                (4, -4),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="left",
                va="top",
                fontsize=8.5,
            )
        else:
            told.append(f"The limit of {words} lies far above the diagram.")
    axes.margins(x=0.08, y=0.14)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.set_xlabel("micro-batch (samples per device and backward pass)")
    axes.set_ylabel(f"peak memory of one device ({scale.unit})")
    style.legend_below(axes, columns=2)
    if not told and np.isnan(limits(study)[every]).all():
        told.append("The device's limit is not known.")
    cut = f"{len(shown)} of {len(found):,} lines are drawn." if len(found) > len(shown) else ""
    return Drawing(
        canvas,
        sentences(
            "Points of a line differ in batch and accumulation alone; a cross is a run that ran "
            "out of memory.",
            *told,
            cut,
            machine(study, every),
            kind_of_memory(study),
        ),
        f"Peak memory over the micro-batch, {len(shown)} lines of {len(every)} configurations.",
    )
