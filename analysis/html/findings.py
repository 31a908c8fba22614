"""What a reader should know after a minute, in words made from the figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import compare
from analysis.advice.advice import duration, percent, rate, run_id, size
from analysis.axes import equal, text
from analysis.baseline import DEFAULT, Match, axis_values, find, match
from analysis.scaling import curves
from analysis.study import Floats, Study


@dataclass(frozen=True)
class Finding:
    """A sentence, what it rests on, and the part of the page that shows more."""

    text: str
    evidence: str
    anchor: str = ""


def _done(study: Study) -> npt.NDArray[np.bool_]:
    return np.asarray(study.configurations["completed"].to_numpy() > 0, dtype=np.bool_)


def _relative(study: Study, found: Match, row: int) -> str:
    """`, 56.8 % less memory and 24.6 % slower than its baseline`."""
    saved = compare.percent(study, found, "memory_saved")[row]
    speed = compare.percent(study, found, "speed")[row]
    if found.is_base[row]:
        return ", the baseline itself"
    parts = []
    if saved == saved:
        parts.append(f"{abs(saved):.0f} % {'less' if saved >= 0 else 'more'} memory")
    if speed == speed:
        parts.append(f"{abs(speed):.0f} % {'faster' if speed >= 0 else 'slower'}")
    return f", {' and '.join(parts)} than its baseline" if parts else ""


def _one_machine(study: Study) -> bool:
    done = study.configurations[_done(study)]
    return all(done[name].nunique(dropna=False) <= 1 for name in ("machine", "source", "software"))


def extremes(study: Study) -> list[Finding]:
    """The least memory and the most throughput; nothing where machines differ."""
    if not _one_machine(study) or not _done(study).any():
        return []
    found = find(study)
    labels, done = study.labels(), _done(study)
    peak, speed = study.mean("peak_bytes"), study.mean("time.samples_per_s")
    step = study.mean("time.step_time_s")
    kinds = study.configurations["peak_kind"][done & ~np.isnan(peak)].nunique()
    findings = []
    if kinds == 1:
        row = int(np.nanargmin(np.where(done, peak, np.nan)))
        told = f" at {rate(speed[row])}" if speed[row] == speed[row] else ""
        findings.append(
            Finding(
                f"Least memory: {labels[row]}, {size(peak[row])}{told}"
                f"{_relative(study, found, row)}.",
                f"run {run_id(study, row)}",
                "table-runs",
            )
        )
    if (done & ~np.isnan(speed)).any():
        row = int(np.nanargmax(np.where(done, speed, np.nan)))
        told = f" with {size(peak[row])}" if peak[row] == peak[row] else ""
        findings.append(
            Finding(
                f"Fastest: {labels[row]}, {rate(speed[row])} ({duration(step[row])} a step){told}"
                f"{_relative(study, found, row)}.",
                f"run {run_id(study, row)}",
                "table-runs",
            )
        )
    return findings


def _range(values: Floats, positive: str, negative: str) -> str:
    """`22 to 65 % less`; `from 7 % more to 7 % less` where the signs differ."""
    low, high = float(values.min()), float(values.max())
    if low >= 0 or high <= 0:
        ends = [f"{end:.0f}" for end in sorted((abs(low), abs(high)))]
        if set(ends) == {"0"}:
            return "about the same"
        return f"{' to '.join(dict.fromkeys(ends))} % {positive if high > 0 else negative}"
    return f"from {-low:.0f} % {negative} to {high:.0f} % {positive}"


_SECTIONS = {"precision": "table-precision", "ckpt": "table-checkpointing"}


def effects(study: Study) -> list[Finding]:
    """What each change of one setting did, over all pairs that agree in all else."""
    findings = []
    for name in ("precision", "ckpt", "accum"):
        axis = study.axis(name)
        if axis is None:
            continue
        old = str(study.question.baseline.get(name, DEFAULT[name]))
        found = match(study, {name: old})
        saved, speed = (compare.percent(study, found, n) for n in ("memory_saved", "speed"))
        loss = compare.percent(study, found, "validation_loss")
        values = axis_values(study, axis)
        for new in values.unique():
            rows = np.flatnonzero(values.eq(new).to_numpy() & (found.base >= 0) & ~found.is_base)
            if equal(new, old) or not len(rows):
                continue
            parts = []
            if not np.isnan(saved[rows]).all():
                kept = saved[rows][~np.isnan(saved[rows])]
                parts.append(f"memory {_range(kept, 'less', 'more')}")
            if not np.isnan(speed[rows]).all():
                kept = speed[rows][~np.isnan(speed[rows])]
                parts.append(f"speed {_range(kept, 'faster', 'slower')}")
            if not np.isnan(loss[rows]).all():
                most = float(np.nanmax(np.abs(loss[rows])))
                same = "equal" if most < 1e-6 else f"within {most:.2g} %"
                parts.append(f"validation loss {same}")
            if parts:
                pairs = int(np.isin(study.configuration[found.base_run >= 0], rows).sum())
                findings.append(
                    Finding(
                        f"{name}={text(new)} against {name}={old}, all else equal: "
                        f"{'; '.join(parts)}.",
                        f"{pairs} pairs of runs in {len(rows)} configurations",
                        _SECTIONS.get(name, "table-runs"),
                    )
                )
    return findings


def scaling(study: Study) -> list[Finding]:
    """The best and the worst efficiency on the most GPUs."""
    if study.axis("gpus") is None:
        return []
    findings = []
    on_cpu = study.frame["hardware.device"].eq("cpu").any()
    unit = "processes on a CPU" if on_cpu else "GPUs"
    labels = study.labels()
    for found in (curves(study, "strong"), curves(study, "weak")):
        usable = (found.curve >= 0) & np.isfinite(found.speed_up) & (found.gpus > 1)
        if not usable.any():
            continue
        most = found.gpus[usable].max()
        rows = np.flatnonzero(usable & (found.gpus == most))
        best = int(rows[np.argmax(found.speed_up[rows])])
        worst = int(rows[np.argmin(found.speed_up[rows])])
        told = f"{found.speed_up[best]:.2f} times, efficiency {percent(found.efficiency[best])}"
        if worst != best:
            told += f" at best, {found.speed_up[worst]:.2f} times at worst"
        findings.append(
            Finding(
                f"{most:.0f} {unit}, {found.kind} scaling: speed-up {told}.",
                f"best: {labels[best]} (run {run_id(study, best)})",
                "table-scaling",
            )
        )
    return findings


def failures(study: Study) -> list[Finding]:
    """What did not complete, and what fits only with a change."""
    frame = study.frame
    stopped = frame[frame["status"] != "completed"]
    findings = []
    for status, runs in stopped.groupby("status", sort=True):
        ids = [str(v) for v in runs["run_id"].head(4)]
        more = f" and {len(runs) - 4:,} more" if len(runs) > 4 else ""
        findings.append(
            Finding(
                f"{len(runs):,} of {len(frame):,} runs did not complete: {status}.",
                f"runs {', '.join(ids)}{more}",
                "failures",
            )
        )
    found, labels = find(study), study.labels()
    for row in compare.fits_only(study, found)[:4]:
        base = int(found.candidate[row])
        findings.append(
            Finding(
                f"{labels[row]} fits; its baseline {labels[base]} ran out of memory.",
                f"runs {run_id(study, row)} and {run_id(study, base)}",
                "table-runs",
            )
        )
    return findings


def certainty(study: Study) -> list[Finding]:
    """How far the figures can be trusted."""
    most = int(study.configurations["completed"].max()) if len(study.configurations) else 0
    if most >= 2:
        return []
    return [
        Finding(
            "One run of each configuration: how much a figure varies from run to run is not known. "
            "Small differences may be chance.",
            "no configuration has 2 completed repeats",
            "table-runs",
        )
    ]


def summarize(study: Study) -> list[Finding]:
    """The findings, the most important first."""
    if not len(study.configurations):
        return []
    return [
        *failures(study),
        *extremes(study),
        *effects(study),
        *scaling(study),
        *certainty(study),
    ]


def what_was_run(study: Study) -> str:
    """One sentence: how much of what ran, and on what."""
    frame = study.frame
    count = len(study.configurations)
    runs = f"{len(frame):,} runs" if len(frame) != count else f"{count:,} runs"
    told = f"{runs} of {count:,} configurations" if len(frame) != count else runs
    for name, word in (("model", "model"), ("data", "data set")):
        values = [text(v) for v in pd.unique(frame[name].dropna())]
        if len(values) == 1:
            told += f", {word} {values[0]}"
        elif values:
            told += f", {len(values)} {word}s"
    sources = [v for v in pd.unique(frame["source"]) if v != "measured"]
    marked = f" ({', '.join(map(str, sources))})" if sources else ""
    varied = ", ".join(axis.name for axis in study.axes[:8])
    more = f" and {len(study.axes) - 8} more" if len(study.axes) > 8 else ""
    return f"{told}{marked}. What varies: {varied}{more}." if varied else f"{told}{marked}."
