"""Claims about what fits, and about what grows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.axes import combine, resolve
from analysis.baseline import context_codes, others
from analysis.claims import Claim
from analysis.evidence import RUN_FIGURES, select, used_bytes, values_of
from analysis.outcome import Outcome, judged, machines, untested
from analysis.study import CONTEXT, Floats, Study

GIB = 2**30


def _limits(study: Study) -> Floats:
    """For each configuration, the memory that it was allowed, GiB; NaN: the whole device."""
    if "config.hardware.memory_limit_gib" not in study.frame.columns:
        return np.full(len(study.configurations), np.nan)
    column = values_of(study, "hardware.memory_limit_gib")
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)


def fits(study: Study, claim: Claim) -> list[Outcome]:
    """Whether some selected configuration trains within the claim's memory.

    Evidence is a run on the machine that the claim names, or under a limit of that size: completed
    or out of memory; elsewhere the memory that a completed run is known to have held.
    """
    assert claim.gib is not None
    rows = study.configurations
    chosen = np.flatnonzero(select(study, claim.where)).tolist()
    status, machine, runs = (rows[n].to_numpy() for n in ("status", "machine", "runs"))
    used, peak = used_bytes(study) / GIB, study.mean("peak_bytes") / GIB
    limits = _limits(study)
    outcomes = []
    for i in chosen:
        there = claim.machine is not None and claim.machine in (machine[i] or "")
        fit: bool | None = None
        if there or limits[i] <= claim.gib:
            fit = {"completed": True, "oom": False}.get(status[i])
            capped = f" within a limit of {limits[i]:g} GiB" if limits[i] <= claim.gib else ""
            remark = f"{status[i]}{capped}"
        elif status[i] == "completed" and not np.isnan(used[i]):
            fit, remark = bool(used[i] <= claim.gib), f"it held {used[i]:.2f} GiB elsewhere"
        elif status[i] == "completed" and peak[i] > claim.gib:
            fit, remark = False, f"its tensors alone took {peak[i]:.2f} GiB"
        if fit is not None:
            measured = Outcome(
                claim,
                "holds" if fit else "does not hold",
                machine[i] or "not recorded",
                value=float(peak[i] if np.isnan(used[i]) else used[i]),
                pairs=int(runs[i]),
                remark=remark,
            )
            outcomes.append(measured)
    if not outcomes:
        return untested(claim, "no run tells what it held" if chosen else "no such run")
    best = min(outcomes, key=lambda o: (o.verdict != "holds", o.value))
    return [replace(best, configurations=len(outcomes))]


def trend(study: Study, claim: Claim) -> list[Outcome]:
    """The share of steps along a key, all else equal, in which the figure grew, in percent."""
    named = [resolve(study.frame, claim.along)] if claim.along not in _BATCHES else []
    named += [a for a in study.axes if claim.along in _BATCHES and a.name.startswith("batch.")]
    count = len(study.configurations)
    context = [context_codes(study, name) for name in CONTEXT]
    group = combine([*others(study, named), *context], count)
    along = pd.to_numeric(values_of(study, claim.along), errors="coerce").to_numpy(np.float64)
    figure = RUN_FIGURES[claim.metric](study)
    usable = select(study, claim.where) & ~np.isnan(along) & ~np.isnan(figure)
    usable &= study.configurations["completed"].to_numpy() > 0
    rows = np.flatnonzero(usable)
    rows = rows[np.lexsort((along[rows], group[rows]))]
    step = (group[rows][1:] == group[rows][:-1]) & (along[rows][1:] > along[rows][:-1])
    if not step.any():
        return untested(claim, f"no two runs differ in {claim.along} alone")
    grew = figure[rows][1:] > figure[rows][:-1]
    ends = rows[1:][step]
    outcomes = []
    for machine, here in machines(study, ends):
        mine = np.isin(ends, here)
        value = 100 * float(grew[step][mine].mean())
        measured = Outcome(
            claim, "not tested", machine, value, pairs=len(here), configurations=len(here) + 1
        )
        outcomes.append(judged(replace(claim, low=100.0), measured))
    return [replace(o, claim=claim) for o in outcomes]


_BATCHES = ("global_batch", "micro_batch")
