"""The least memory and the most throughput among runs that do the same work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import compare
from analysis.advice.advice import duration, rate, run_id, size
from analysis.axes import Codes, codes, combine, text
from analysis.baseline import Match, axis_codes, find
from analysis.html.finding import Finding
from analysis.study import CONTEXT, Floats, Study

# Groups of configurations with findings of their own; the largest come first.
MOST_GROUPS = 3

# Axes that set what is trained, on what; `origin`, `input` and `setup` are those of imported rows.
_WORK = ("model", "data", "origin", "input", "setup")


def _done(study: Study) -> npt.NDArray[np.bool_]:
    return np.asarray(study.configurations["completed"].to_numpy() > 0, dtype=np.bool_)


def _groups(study: Study) -> list[Codes]:
    """Completed configurations of one model, data set and global batch, the largest group first."""
    rows = np.flatnonzero(_done(study))
    work = [axis for axis in study.axes if axis.name.split(".", 1)[0] in _WORK]
    parts = [axis_codes(study, axis)[rows] for axis in work]
    parts.append(codes(study.configurations["global_batch"].iloc[rows]))
    group = combine(parts, len(rows))
    found = [rows[group == number] for number in range(int(group.max(initial=-1)) + 1)]
    # Alone in its group a configuration is the best of nothing.
    several = [rows for rows in found if len(rows) > 1 or len(found) == 1]
    return sorted(several, key=len, reverse=True)


def _group_name(study: Study, rows: Codes) -> str:
    """`model=dit_s, global batch 64: `; "" where no configuration does other work."""
    shown = study.configurations
    told = [
        f"{axis.name}={text(shown[f'axis.{axis.name}'].iat[rows[0]])}"
        for axis in study.axes
        if axis.name.split(".", 1)[0] in _WORK
    ]
    batch = shown["global_batch"].to_numpy(dtype=np.float64)
    if pd.Series(batch[_done(study)]).nunique(dropna=False) > 1 and not np.isnan(batch[rows[0]]):
        told.append(f"global batch {batch[rows[0]]:.0f}")
    return f"{', '.join(told)}: " if told else ""


def _world(study: Study) -> Floats:
    """For each configuration, on how many GPUs, or in how many processes, it ran."""
    gpus = pd.to_numeric(study.frame["gpus"], errors="coerce").to_numpy(dtype=np.float64)
    return np.asarray(gpus[study.configurations["run"].to_numpy()], dtype=np.float64)


def _each(study: Study, row: int) -> str:
    """` per GPU`, ` per process`: whose memory a peak is; "" where every run has one of them."""
    if not np.nanmax(_world(study), initial=1.0) > 1:
        return ""
    device = study.frame["hardware.device"].to_numpy()[study.configurations["run"].to_numpy()[row]]
    return " per process" if device == "cpu" else " per GPU"


def _memory(study: Study, row: int) -> str:
    """`4.23 MiB per process (33.8 MiB in all)`: the processes of a CPU share its memory."""
    peak, world, each = study.mean("peak_bytes")[row], _world(study)[row], _each(study, row)
    told = f"{size(peak)}{each}"
    return f"{told} ({size(peak * world)} in all)" if "process" in each and world > 1 else told


def _relative(study: Study, found: Match, row: int) -> str:
    """`, 56.8 % less memory and 24.6 % slower than its baseline`."""
    if found.is_base[row]:
        return ", the baseline itself"
    saved = compare.percent(study, found, "memory_saved")[row]
    speed = compare.percent(study, found, "speed")[row]
    each, world, parts = _each(study, row), _world(study), []
    if saved == saved:
        told = f"{abs(saved):.0f} % {'less' if saved >= 0 else 'more'} memory{each}"
        base = found.base[row]
        if "process" in each and world[row] != world[base]:
            whole = 100 - (100 - saved) * world[row] / world[base]
            told += f" ({abs(whole):.0f} % {'less' if whole >= 0 else 'more'} in all)"
        parts.append(told)
    if speed == speed:
        parts.append(f"{abs(speed):.0f} % {'faster' if speed >= 0 else 'slower'}")
    return f", {' and '.join(parts)} than its baseline" if parts else ""


def _least_memory(study: Study, found: Match, rows: Codes, where: str) -> list[Finding]:
    peak, speed = study.mean("peak_bytes"), study.mean("time.samples_per_s")
    known = rows[~np.isnan(peak[rows])]
    if study.configurations["peak_kind"].iloc[known].nunique() != 1:
        return []
    row = int(known[np.argmin(peak[known])])
    told = f" at {rate(speed[row])}" if speed[row] == speed[row] else ""
    return [
        Finding(
            f"{where}Least memory: {study.labels()[row]}, {_memory(study, row)}{told}"
            f"{_relative(study, found, row)}.",
            f"run {run_id(study, row)}",
            "table-runs",
        )
    ]


def _fastest(study: Study, found: Match, rows: Codes, where: str) -> list[Finding]:
    peak, speed = study.mean("peak_bytes"), study.mean("time.samples_per_s")
    known = rows[~np.isnan(speed[rows])]
    if not len(known):
        return []
    row = int(known[np.argmax(speed[known])])
    told = f" with {_memory(study, row)}" if peak[row] == peak[row] else ""
    step = study.mean("time.step_time_s")[row]
    return [
        Finding(
            f"{where}Fastest: {study.labels()[row]}, {rate(speed[row])} "
            f"({duration(step)} a step){told}{_relative(study, found, row)}.",
            f"run {run_id(study, row)}",
            "table-runs",
        )
    ]


def extremes(study: Study) -> list[Finding]:
    """The least memory and the most throughput of each model, data set and global batch.

    Nothing where machines, software or sources differ.
    """
    done = study.configurations[_done(study)]
    if any(done[name].nunique(dropna=False) > 1 for name in CONTEXT):
        return []
    found, groups = find(study), _groups(study)
    findings = []
    for rows in groups[:MOST_GROUPS]:
        where = _group_name(study, rows)
        findings += _least_memory(study, found, rows, where)
        findings += _fastest(study, found, rows, where)
    rest = len(groups) - MOST_GROUPS
    if rest > 0:
        findings.append(
            Finding(
                f"{rest:,} more groups of one model, data set and global batch have a least and a "
                "fastest of their own.",
                "the largest groups are named",
                "table-runs",
            )
        )
    return findings
