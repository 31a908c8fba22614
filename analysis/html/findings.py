"""What a reader should know after a minute, in words made from the figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis import compare
from analysis.advice.advice import configurations, percent, run_id
from analysis.axes import Codes, equal, text
from analysis.baseline import DEFAULT, Match, axis_values, find, match, pairs
from analysis.html.extremes import extremes
from analysis.html.finding import Finding
from analysis.scaling import curves
from analysis.study import Floats, Study
from analysis.tables.claims import documents


def _range(values: Floats, positive: str, negative: str) -> str:
    """`22 to 65 % less`; `from 7 % more to 7 % less` where the signs differ."""
    low, high = float(values.min()), float(values.max())
    if low >= 0 or high <= 0:
        ends = [f"{end:.0f}" for end in sorted((abs(low), abs(high)))]
        if set(ends) == {"0"}:
            return "about the same"
        return f"{' to '.join(dict.fromkeys(ends))} % {positive if high > 0 else negative}"
    return f"from {-low:.0f} % {negative} to {high:.0f} % {positive}"


def _same(values: Floats) -> str:
    """`equal`, or `within 0.2 %`."""
    most = float(np.abs(values).max())
    return "equal" if most < 1e-6 else f"within {most:.2g} %"


# Figure of a finding -> the figure of `compare`, and the words for its values in percent.
_COMPARED = {"memory": "memory_saved", "speed": "speed", "validation loss": "validation_loss"}
_WORDS: dict[str, Callable[[Floats], str]] = {
    "memory": lambda values: _range(values, "less", "more"),
    "speed": lambda values: _range(values, "faster", "slower"),
    "validation loss": _same,
}


def _evidence(study: Study, found: Match, rows: Codes, figures: list[str]) -> str:
    """`4 pairs of runs in 4 configurations`; figure by figure where that is not the same."""
    imported = study.configurations["source"].iloc[rows].eq("imported").any()
    counts: dict[str, str] = {}
    for figure in figures:
        paired = pairs(study, found, compare.FIGURES[_COMPARED[figure]].column)
        of = paired.configuration[np.isin(paired.configuration, rows)]
        number, where = len(of), len(np.unique(of))
        word = "comparison of means" if imported else "pair of runs"
        several = word if number == 1 else word.replace(" of", "s of", 1)
        counts[figure] = f"{number:,} {several} in {configurations(where)}"
    if len(set(counts.values())) == 1:
        return next(iter(counts.values()))
    return "; ".join(f"{figure}: {count}" for figure, count in counts.items())


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
        figures = {
            figure: (compare.percent(study, found, _COMPARED[figure]), words)
            for figure, words in _WORDS.items()
        }
        values = axis_values(study, axis)
        for new in values.unique():
            rows = np.flatnonzero(values.eq(new).to_numpy() & (found.base >= 0) & ~found.is_base)
            if equal(new, old) or not len(rows):
                continue
            told = []
            for figure, (values_of, words) in figures.items():
                kept = values_of[rows][~np.isnan(values_of[rows])]
                if len(kept):
                    told.append((figure, f"{figure} {words(kept)}"))
            if told:
                findings.append(
                    Finding(
                        f"{name}={text(new)} against {name}={old}, all else equal: "
                        f"{'; '.join(words for _, words in told)}.",
                        _evidence(study, found, rows, [figure for figure, _ in told]),
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


def claims(study: Study) -> list[Finding]:
    """How many of the common claims hold in these runs."""
    verdicts = [outcome.verdict for outcome in documents(study)]
    held, failed, untested = (
        verdicts.count(word) for word in ("holds", "does not hold", "not tested")
    )
    return [
        Finding(
            f"Claims: {held} hold, {failed} do not hold, {untested} not tested.",
            "one for each claim and machine",
            "table-claims",
        )
    ]


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
        *claims(study),
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
