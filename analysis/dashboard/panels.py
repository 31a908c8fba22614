"""The panels of the dashboard: the same in the workspace and in the report."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from analysis.dashboard import keys
from analysis.dashboard.keys import Measure

# Imported so because the library re-exports its names without declaring it.
wr: Any = import_module("wandb_workspaces.reports.v2")

# A row of panels is 24 wide.
HALF, FULL, HEIGHT = 12, 24, 8


def _bars(measure: Measure, spread: Any, x: int, y: int) -> Any:
    return wr.BarPlot(
        title=f"{measure.heading} by variant, mean over repeats",
        metrics=[measure.key],
        groupby=wr.Config(keys.VARIANT),
        groupby_aggfunc="mean",
        groupby_rangefunc=spread,
        max_bars_to_show=30,
        layout=wr.Layout(x, y, HALF, HEIGHT),
    )


def _scatter(x: int, y: int) -> Any:
    return wr.ScatterPlot(
        title=f"{keys.STEP_TIME.heading} against {keys.PEAK.title.lower()} ({keys.PEAK.unit})",
        x=wr.SummaryMetric(keys.STEP_TIME.key),
        y=wr.SummaryMetric(keys.PEAK.key),
        z=wr.SummaryMetric(keys.LOSS.key),
        legend_template="${config:variant}",
        layout=wr.Layout(x, y, HALF, HEIGHT),
    )


def _parallel(x: int, y: int) -> Any:
    techniques = [wr.ParallelCoordinatesPlotColumn(wr.Config(name)) for name in keys.TECHNIQUES]
    costs = [
        wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(m.key), display_name=m.heading, log=log)
        for m, log in ((keys.PEAK, False), (keys.STEP_TIME, True), (keys.LOSS, False))
    ]
    return wr.ParallelCoordinatesPlot(
        title="From settings to cost",
        columns=[*techniques, *costs],
        layout=wr.Layout(x, y, HALF, HEIGHT),
    )


def _curves(x: int, y: int) -> Any:
    return wr.LinePlot(
        title="Training loss by variant",
        x=keys.STEP,
        y=[keys.TRAIN_LOSS],
        groupby=wr.Config(keys.VARIANT),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        layout=wr.Layout(x, y, HALF, HEIGHT),
    )


def panels() -> list[Any]:
    """All panels, laid out."""
    return [
        _bars(keys.PEAK, "minmax", 0, 0),
        _bars(keys.STEP_TIME, "stddev", HALF, 0),
        _scatter(0, HEIGHT),
        _parallel(HALF, HEIGHT),
        _curves(0, 2 * HEIGHT),
        _bars(keys.THROUGHPUT, "minmax", HALF, 2 * HEIGHT),
        wr.RunComparer(diff_only=True, layout=wr.Layout(0, 3 * HEIGHT, FULL, HEIGHT + 2)),
    ]


def columns() -> list[str]:
    """Columns of the run table that stand first."""
    config = [f"config:{name}.value" for name in (keys.VARIANT, *keys.TECHNIQUES)]
    measures = (keys.PEAK, keys.STEP_TIME, keys.THROUGHPUT, keys.LOSS)
    return [*config, f"summary:{keys.STATUS}", *(f"summary:{m.key}" for m in measures)]
