"""Runs of a sweep as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sweeper.launch.progress import Progress, age_s

if TYPE_CHECKING:
    from rich.console import Group

STALE_S = 30.0  # a heartbeat older than this is shown


def duration(seconds: float | None) -> str:
    """`7 s`, `3:05 min`, `2:10 h`, or a dash where it is not known."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def _number(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else format(value * factor, form)


def table(runs: Iterable[Progress], summary: str) -> Group:
    """One line a run: where it is, its loss, pace, memory, and what is left; the summary below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    shown.add_column("run", overflow="fold")
    shown.add_column("status")
    shown.add_column("phase")
    for title in ("step", "loss", "step ms", "MiB", "left"):
        shown.add_column(title, justify="right")
    for run in runs:
        state = run.state
        status = run.status
        if state and status == "running" and state.heartbeat_at:
            silent = age_s(state.heartbeat_at)
            if silent > STALE_S:
                status = f"silent {duration(silent)}"
        step = (
            f"{state.step}/{state.total_steps or '?'}" if state and state.step is not None else "-"
        )
        shown.add_row(
            run.label,
            status,
            (state.phase or "-") if state else "-",
            step,
            _number(state.loss if state else None, ".4g"),
            _number(state.step_time_s if state else None, ".4g", 1e3),
            _number(state.memory_bytes if state else None, ",.0f", 2**-20),
            duration(run.time_left_s) if run.status == "running" else "-",
        )
    return Group(shown, Text(summary))
