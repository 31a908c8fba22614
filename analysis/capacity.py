"""Claims about what fits, and about what grows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analysis.axes import codes, combine, resolve
from analysis.baseline import context_codes, others
from analysis.claims import Claim
from analysis.evidence import RUN_FIGURES, numbers_of, select, used_bytes
from analysis.frame import translate
from analysis.outcome import Outcome, judged_by_value, machines, untested
from analysis.study import CONTEXT, Floats, Study
from sweeper.errors import UserError

GIB = 2**30

# A device of nominal size has somewhat less: a GPU sold with 24 GB offers 22 to 24 GiB.
NOMINAL = 0.9

_SIZE = re.compile(r"(\d+)\s?GB?\b", re.IGNORECASE)


def _limits(study: Study) -> Floats:
    """For each configuration, the memory that it was allowed, GiB; NaN: the whole device."""
    if "config.hardware.memory_limit_gib" not in study.frame.columns:
        return np.full(len(study.configurations), np.nan)
    return numbers_of(study, "hardware.memory_limit_gib")


def _named_size(name: str) -> float:
    """The size that a GPU's name states, GB; NaN where it states none. Remarks do not count."""
    found = _SIZE.findall(re.sub(r"\(.*?\)", "", name))
    return float(found[-1]) if found else float("nan")  # of `80GB MIG 2g.20gb` the last is meant


def _sizes(study: Study) -> Floats:
    """For each configuration, the memory of its device, GiB; by its name where not recorded."""
    rows = study.configurations["run"].to_numpy()
    names = study.frame["hardware.device_name"].iloc[rows]
    stated = translate(names, _named_size).to_numpy(dtype=np.float64)
    measured = study.mean("hardware.device_memory_bytes") / GIB
    return np.where(np.isnan(measured), stated, measured)


class _Evidence(NamedTuple):
    """What one configuration shows: whether it fits (None: it shows nothing), and how."""

    fit: bool | None
    remark: str


def _shown(claim: Claim, status: str, size: float, limit: float, there: bool) -> _Evidence:
    """What the end of a run shows of a claim.

    A run that completed shows that as much as it was given is enough; one that ran out of memory
    shows that as much as that is not. So the first counts where it was given no more than the claim
    says, and the second where it was given no less. The named machine, where its size is not
    known, is taken to have the claim's memory for the first, not for the second.

    Args:
        size: the device's memory, GiB; NaN where it is not known.
        limit: what it was allowed of it, GiB; NaN: all.
        there: whether the device is the one that the claim names.
    """
    gib = claim.gib or 0.0
    capped = f" within a limit of {limit:g} GiB" if limit == limit else ""
    on = "" if there or capped else f" on {size:.4g} GiB"
    if status == "completed":
        if limit <= gib or (not capped and (size <= gib or (there and size != size))):
            return _Evidence(True, f"completed{capped}{on}")
    elif status == "oom":
        if limit >= gib or (not capped and size >= NOMINAL * gib):
            return _Evidence(False, f"oom{capped}{on}")
        if size != size and not capped:
            return _Evidence(None, "a run ran out of memory on a device of unknown size")
    return _Evidence(None, "")


def fits(study: Study, claim: Claim) -> list[Outcome]:
    """Whether some selected configuration trains within the claim's memory.

    Evidence is a run that completed on the machine that the claim names, on a device of no more
    memory or under such a limit; one that ran out of memory on a device of no less; elsewhere the
    memory that a completed run is known to have held.
    """
    assert claim.gib is not None
    rows = study.configurations
    chosen = np.flatnonzero(select(study, claim.where)).tolist()
    status, runs = rows["status"].to_numpy(), rows["runs"].to_numpy()
    machine = rows["machine"].fillna("").to_numpy(dtype=object)
    used, peak = used_bytes(study) / GIB, study.mean("peak_bytes") / GIB
    limits, sizes = _limits(study), _sizes(study)
    wanted = None if claim.machine is None else claim.machine.lower()
    outcomes, unknown = [], ""
    for i in chosen:
        there = wanted is not None and wanted in machine[i].lower()
        fit, remark = _shown(claim, status[i], sizes[i], limits[i], there)
        if fit is None and status[i] == "completed":
            if not np.isnan(used[i]):
                fit, remark = bool(used[i] <= claim.gib), f"it held {used[i]:.2f} GiB elsewhere"
            elif peak[i] > claim.gib:
                fit, remark = False, f"its tensors alone took {peak[i]:.2f} GiB"
        if fit is None:
            unknown = unknown or remark
            continue
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
        return untested(
            claim, (unknown or "no run tells what it held") if chosen else "no such run"
        )
    best = min(outcomes, key=lambda o: (o.verdict != "holds", np.nan_to_num(o.value, nan=np.inf)))
    inside = sum(o.verdict == "holds" for o in outcomes)
    return [replace(best, configurations=len(outcomes), inside=inside)]


def trend(study: Study, claim: Claim) -> list[Outcome]:
    """The share of steps along a key, all else equal, in which the figure grew, in percent.

    Of the claim's figures the first counts that was measured, along the first of its keys.
    """
    missing: list[str] = []
    unknown: list[UserError] = []
    for metric in claim.metrics:
        for key in claim.along:
            try:
                outcomes = _trend(study, claim, metric, key)
            except UserError as error:
                unknown.append(error)
                continue
            if outcomes:
                return outcomes
            missing.append(key)
    if not missing:
        raise unknown[0]
    keys = " or ".join(dict.fromkeys(missing))
    return untested(claim, f"no two runs differ in {keys} alone")


def _trend(study: Study, claim: Claim, metric: str, key: str) -> list[Outcome]:
    """Outcomes for one figure along one key; none where no two runs differ in it alone."""
    named = [resolve(study.frame, key)] if key not in _BATCHES else []
    named += [a for a in study.axes if key in _BATCHES and a.name.startswith("batch.")]
    count = len(study.configurations)
    context = [context_codes(study, name) for name in CONTEXT]
    if metric in _PEAKS:  # peaks of different kinds of memory are not compared
        context.append(codes(study.configurations["peak_kind"]))
    group = combine([*others(study, named), *context], count)
    along, figure = numbers_of(study, key), RUN_FIGURES[metric](study)
    usable = select(study, claim.where) & np.isfinite(along) & np.isfinite(figure)
    usable &= study.configurations["completed"].to_numpy() > 0
    rows = np.flatnonzero(usable)
    rows = rows[np.lexsort((along[rows], group[rows]))]
    step = (group[rows][1:] == group[rows][:-1]) & (along[rows][1:] > along[rows][:-1])
    grew = figure[rows][1:] > figure[rows][:-1]
    ends, starts = rows[1:][step], rows[:-1][step]
    outcomes = []
    for machine, here in machines(study, ends):
        mine = np.isin(ends, here)
        measured = Outcome(
            claim,
            "not tested",
            machine,
            value=100 * float(grew[step][mine].mean()),
            pairs=len(here),
            configurations=len(np.union1d(starts[mine], here)),
            inside=int(grew[step][mine].sum()),
            remark="" if metric == claim.metric else f"by {metric}",
        )
        outcomes.append(judged_by_value(replace(claim, low=100.0), measured))
    return [replace(o, claim=claim) for o in outcomes]


_BATCHES = ("global_batch", "micro_batch")
_PEAKS = ("peak_bytes", "used_bytes", "peak_over_formula")
