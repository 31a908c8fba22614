"""Out of memory: which change makes it fit, and what it costs."""

from __future__ import annotations

import numpy as np

from analysis.advice.advice import MOST_LINES, Advice, duration, named, rate, run_id, size, speaker
from analysis.advice.levers import is_lever
from analysis.advice.limits import limits
from analysis.advice.neighbours import Neighbour, cost_in_time, neighbours, settings
from analysis.study import Study

RULE = "out of memory"

# Each is compared with all others; more of them say nothing new.
MOST_ROWS = 20


def _outcome(study: Study, near: Neighbour, limit: float) -> bool | None:
    """Whether the neighbour fits: it ran, it ran out of memory, or its estimate is on one side."""
    rows = study.configurations
    if rows["source"].iat[near.row] == "estimate":
        peak = study.mean("peak_bytes")[near.row]
        return None if np.isnan(peak) or np.isnan(limit) else bool(peak <= limit)
    return {"completed": True, "oom": False}.get(rows["status"].to_numpy()[near.row])


def _near(study: Study, row: int, farthest: int) -> list[Neighbour]:
    """Neighbours that train the same model on the same data, in another way."""
    found = neighbours(study, row, farthest)
    return [n for n in found if all(is_lever(axis.name) for axis in n.axes)]


def _batch_change(study: Study, near: Neighbour, row: int) -> str:
    """`the global batch is then 64, not 128`; "" where it stays or is not known."""
    batch = study.configurations["global_batch"].to_numpy(dtype=np.float64)
    old, new = batch[row], batch[near.row]
    return f"the global batch is then {new:.0f}, not {old:.0f}" if abs(new - old) > 0 else ""


def _option(study: Study, near: Neighbour, row: int) -> str:
    told = _batch_change(study, near, row)
    return f"{settings(study, near)} ({told})" if told else settings(study, near)


def _line(study: Study, near: Neighbour, row: int) -> str:
    peak, step = study.mean("peak_bytes")[near.row], study.mean("time.step_time_s")[near.row]
    speed = study.mean("time.samples_per_s")[near.row]
    estimated = study.configurations["source"].iat[near.row] == "estimate"
    told = [f"{size(peak)} {'estimated' if estimated else 'measured'}"] if peak == peak else []
    told += [f"{duration(step)} a step"] if step == step else []
    told += [rate(speed)] if speed == speed else []
    figures = ", ".join(told) or "it completed"
    where = run_id(study, near.row)
    parts = [
        f"{settings(study, near)} fits: {figures} (run {where})",
        _batch_change(study, near, row),
        cost_in_time(study, near, row),
    ]
    return "; ".join(filter(None, parts))


def _advise(study: Study, row: int, limit: float) -> Advice:
    near = _near(study, row, 1)
    outcomes = [_outcome(study, n, limit) for n in near]
    fitting = [n for n, fits in zip(near, outcomes, strict=True) if fits]
    failing = [n for n, fits in zip(near, outcomes, strict=True) if fits is False]
    far: list[Neighbour] = []
    if not fitting:
        far = [n for n in _near(study, row, 2) if len(n.axes) == 2]
        far = [n for n in far if _outcome(study, n, limit)]
    speed = study.mean("time.samples_per_s")
    fitting.sort(key=lambda n: -np.nan_to_num(speed[n.row]))
    far.sort(key=lambda n: -np.nan_to_num(speed[n.row]))
    frame = study.frame
    asked = float(frame["error.bytes_requested"].to_numpy()[speaker(study, row)])
    own = f"{named(study, row)}: {study.configurations['reason'].iat[row]}"
    if asked == asked:
        own += f"; it asked for {size(asked)} more"
    if limit == limit:
        own += f"; limit {size(limit)}"
    lines = [own, *(_line(study, n, row) for n in (fitting or far)[:MOST_LINES])]
    lines += [
        f"{settings(study, n)} does not fit either (run {run_id(study, n.row)})"
        for n in failing[:MOST_LINES]
    ]
    if fitting:
        options = ", or ".join(_option(study, n, row) for n in fitting[:4])
        action = f"Change one setting: {options}. The first keeps the most throughput."
        action = action if len(fitting) > 1 else f"Change one setting: {options}."
    elif far:
        options = ", or ".join(_option(study, n, row) for n in far[:3])
        action = f"No single change among these runs makes it fit; two together do: {options}."
    else:
        action = "No run here that differs in one setting or two completed: none shows a way out."
    return Advice(
        RULE,
        f"{study.labels()[row]} ran out of memory.",
        action,
        tuple(lines),
        (run_id(study, row),),
    )


def advise(study: Study) -> list[Advice]:
    """One piece of advice for each configuration that ran out of memory and never completed.

    Of very many such configurations the first MOST_ROWS.
    """
    rows = study.configurations
    stopped = rows["status"].eq("oom").to_numpy() & (rows["completed"].to_numpy() == 0)
    edge = limits(study)
    return [
        _advise(study, row, float(edge[row]))
        for row in np.flatnonzero(stopped).tolist()[:MOST_ROWS]
    ]
