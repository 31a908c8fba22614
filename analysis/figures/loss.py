"""Loss curves by variant, and how far each lies from its baseline's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from analysis.baseline import find
from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import (
    baseline,
    common_label,
    machine,
    sentences,
    short_labels,
)
from analysis.figures.series import STEPS_FILE, read_series, thin
from analysis.study import Floats, Study

TITLE = "Loss curves"

# Curves that lie closer than this share of the diagram's height look like one line.
SAME = 0.01

# Files that are read for this figure, at most.
MOST_RUNS = 64


class Curve(NamedTuple):
    """The loss of one run over its steps."""

    row: int
    step: Floats
    loss: Floats


def read_curves(study: Study) -> list[Curve]:
    """One curve for each of the first MOST_RUNS configurations: that of the run that speaks."""
    where = study.frame["where"].to_numpy()
    curves = []
    for row, run in enumerate(study.configurations["run"].tolist()[:MOST_RUNS]):
        series = read_series(str(where[run]), STEPS_FILE)
        if series is None or not {"step", "loss"} <= set(series.columns):
            continue
        finite = series[["step", "loss"]].dropna()
        finite = finite[np.isfinite(finite["loss"])]
        if len(finite) > 1:
            curves.append(
                Curve(row, finite["step"].to_numpy(float), finite["loss"].to_numpy(float))
            )
    return curves


def _alike(first: Curve, other: Curve, height: float) -> bool:
    if len(first.step) != len(other.step) or not np.array_equal(first.step, other.step):
        return False
    return bool(np.max(np.abs(first.loss - other.loss)) <= SAME * height)


def group_alike(curves: list[Curve]) -> list[list[Curve]]:
    """Curves that would be drawn upon each other, together."""
    values = np.concatenate([c.loss for c in curves])
    height = float(values.max() - values.min())
    groups: list[list[Curve]] = []
    for curve in curves:
        for group in groups:
            if _alike(group[0], curve, height):
                group.append(curve)
                break
        else:
            groups.append([curve])
    return groups


def _upper(axes: Axes, groups: list[list[Curve]], labels: dict[int, str]) -> None:
    for number, group in enumerate(groups[: style.MOST_LINES]):
        step, loss = thin(group[0].step, group[0].loss)
        look = style.line(number) | {"markevery": max(1, len(step) // 12)}
        name = common_label([labels[curve.row] for curve in group])
        axes.plot(step, loss, label=style.shorten(name), **look)
    axes.set_ylabel("training loss")
    axes.legend(loc="upper right", fontsize=8)


def deviations(study: Study, curves: list[Curve]) -> list[Curve]:
    """Loss over the baseline's loss at the same step, minus 1, in percent; the largest first."""
    base = find(study).base
    by_row = {c.row: c for c in curves}
    found = []
    for curve in curves:
        partner = by_row.get(int(base[curve.row]))
        if partner is None or partner.row == curve.row:
            continue
        steps, own, other = np.intersect1d(curve.step, partner.step, return_indices=True)
        below = partner.loss[other]
        usable = below != 0
        if usable.sum() > 1:
            percent = 100 * (curve.loss[own][usable] / below[usable] - 1)
            found.append(Curve(curve.row, steps[usable], percent))
    return sorted(found, key=lambda c: -float(np.abs(c.loss).max()))


def _lower(axes: Axes, groups: list[list[Curve]], labels: dict[int, str]) -> None:
    for number, group in enumerate(groups[: style.MOST_LINES]):
        step, percent = thin(group[0].step, group[0].loss)
        look = style.line(number) | {"markevery": (number, max(1, len(step) // 12))}
        name = common_label([labels[curve.row] for curve in group])
        axes.plot(step, percent, label=style.shorten(name, 40), **look)
    axes.axhline(0, color=style.GREY, lw=0.8)
    axes.set_ylabel("difference from the\nbaseline's loss (%)")
    largest = max(float(np.abs(group[0].loss).max()) for group in groups)
    if largest < 1e-9:
        axes.set_ylim(-1, 1)
    style.legend_below(axes, columns=2)


def build(study: Study) -> Drawing:
    """Training loss over steps above, its difference from the baseline's below.

    Raises:
        NothingToDrawError: no run has left its steps.
    """
    curves = read_curves(study)
    if not curves:
        raise NothingToDrawError(f"no run directory with a {STEPS_FILE} of 2 steps or more")
    rows = [c.row for c in curves]
    labels = dict(zip(rows, short_labels(study, rows), strict=True))
    groups = group_alike(curves)
    found = deviations(study, curves)
    apart = group_alike(found) if found else []
    shown = min(len(apart), style.MOST_LINES)
    height = 3.1 + (2.3 + 0.1 * shown if found else 0)
    canvas, grid = style.canvas(
        height,
        rows=2 if found else 1,
        squeeze=False,
        sharex=True,
        height_ratios=[1.25, 1] if found else [1],
    )
    _upper(grid[0, 0], groups, labels)
    if found:
        _lower(grid[1, 0], apart, labels)
    grid[-1, 0].set_xlabel("optimizer step")
    cut = []
    if len(groups) > style.MOST_LINES:
        cut.append(f"{style.MOST_LINES} of {len(groups)} different curves are drawn.")
    if len(apart) > shown:
        cut.append(f"Below, the {shown} that differ most of {len(apart)}.")
    most = max((float(np.abs(c.loss).max()) for c in found), default=float("nan"))
    distance = f"The largest difference is {most:.2g} %." if found else ""
    return Drawing(
        canvas,
        sentences(
            "One run of each configuration. Curves closer than 1 % of the diagram's height are "
            "drawn as one line.",
            distance,
            *cut,
            baseline(study),
            machine(study, rows),
        ),
        f"Training loss over steps of {len(curves)} configurations. {distance}".strip(),
    )
