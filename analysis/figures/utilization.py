"""Utilisation over time, of the runs that left samples.

A run leaves samples as `utilization.csv` in its directory: `elapsed_s`, `gpu_percent`, the share of
time in which the device was busy, and `cpu_percent`, the same of the processor's cores. A run on a
CPU has the latter alone.
"""

from __future__ import annotations

from typing import NamedTuple

from analysis.figures import style
from analysis.figures.figure import Drawing, NothingToDrawError
from analysis.figures.labels import machine, sentences, short_labels
from analysis.figures.series import UTILIZATION_FILE, read_series, thin
from analysis.study import Floats, Study

TITLE = "Utilisation over time"

# What a well used device reaches, percent.
TARGET = (70, 90)

MOST_RUNS = 64


class Samples(NamedTuple):
    row: int
    elapsed_s: Floats
    busy_percent: Floats
    of: str  # gpu or cpu


def read_samples(study: Study) -> list[Samples]:
    """The samples of the run that speaks for each of the first MOST_RUNS configurations."""
    where = study.frame["where"].to_numpy()
    found = []
    for row, run in enumerate(study.configurations["run"].tolist()[:MOST_RUNS]):
        series = read_series(str(where[run]), UTILIZATION_FILE)
        if series is None:
            continue
        for of in ("gpu", "cpu"):
            columns = ["elapsed_s", f"{of}_percent"]
            if not set(columns) <= set(series.columns):
                continue
            known = series[columns].dropna()
            if len(known) > 1:
                times, busy = (known[name].to_numpy(float) for name in columns)
                found.append(Samples(row, times, busy, of))
                break
    return found


def build(study: Study) -> Drawing:
    """One line for each run; the least used first.

    Raises:
        NothingToDrawError: no run has left samples.
    """
    found = read_samples(study)
    if not found:
        raise NothingToDrawError("no run left samples of its device's utilisation over time")
    found.sort(key=lambda s: float(s.busy_percent.mean()))
    shown = found[: style.MOST_LINES]
    rows = [s.row for s in shown]
    canvas, axes = style.canvas(3.6)
    axes.axhspan(*TARGET, color="#009E73", alpha=0.12, label=f"{TARGET[0]} to {TARGET[1]} %")
    for number, (samples, name) in enumerate(zip(shown, short_labels(study, rows), strict=True)):
        x, y = thin(samples.elapsed_s, samples.busy_percent)
        look = style.line(number) | {"markevery": max(1, len(x) // 10)}
        label = f"{style.shorten(name, 34)} (mean {samples.busy_percent.mean():.0f} %)"
        axes.plot(x, y, label=label, **look)
    axes.set_ylim(0, 103)
    axes.set_xlabel("time since the samples began (s)")
    on_cpu = {samples.of for samples in shown} == {"cpu"}
    axes.set_ylabel("processor's cores busy (%)" if on_cpu else "device busy (%)")
    style.legend_below(axes, columns=2)
    cut = f"The {len(shown)} least used of {len(found)} runs." if len(found) > len(shown) else ""
    return Drawing(
        canvas,
        sentences("The band is where a well used device lies.", cut, machine(study, rows)),
        f"Utilisation over time of {len(shown)} runs.",
    )
