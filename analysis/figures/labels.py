"""Short names of configurations, and the words that every caption needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from analysis import facts
from analysis.axes import label as values_label
from analysis.axes import text
from analysis.baseline import find
from analysis.cells import plain
from analysis.figures.style import names
from analysis.study import CONTEXT, Study

# Axes whose values say what they are.
_PLAIN = ("precision", "model", "data")


def short_labels(
    study: Study, rows: Sequence[int], without: Collection[str] = (), context: bool = True
) -> list[str]:
    """For each of `rows`, the values of what differs among them: `amp ckpt=on gpus=4`.

    Args:
        without: axes that the figure shows in its own way.
        context: also the machine, source or software, where it differs.
    """
    shown = study.configurations.iloc[list(rows)]
    parts: list[list[str]] = []
    for axis in study.axes:
        values = shown[f"axis.{axis.name}"]
        if axis.name in without or (len(shown) > 1 and values.nunique(dropna=False) == 1):
            continue
        prefix = "" if axis.name in _PLAIN else f"{axis.name}="
        parts.append(["" if pd.isna(v) else f"{prefix}{plain(text(v))}" for v in values])
    differing = [c for c in CONTEXT if context and shown[c].nunique(dropna=False) > 1]
    parts += [["" if pd.isna(v) else plain(text(v)) for v in shown[c]] for c in differing]
    if not parts:
        labels = study.labels()
        return [plain(labels[row]) for row in rows]
    return [" ".join(filter(None, row)) or "others" for row in zip(*parts, strict=True)]


def common_label(labels: Sequence[str]) -> str:
    """What several labels have in common, and how many they are: `amp gpus=8 (2 alike)`."""
    if len(labels) == 1:
        return labels[0]
    words = [label.split(" ") for label in labels]
    shared = [w for w in words[0] if all(w in other for other in words)]
    return " ".join([*shared, f"({len(labels)} alike)" if shared else f"all {len(labels)} alike"])


def machine(study: Study, rows: Sequence[int]) -> str:
    """`Machine: CPU AMD EPYC (2 cores).`"""
    found = [
        m for m in pd.unique(study.configurations["machine"].iloc[list(rows)]) if isinstance(m, str)
    ]
    if not found:
        return "Machine: not recorded."
    return f"Machine{'s' if len(found) > 1 else ''}: {names([plain(m) for m in found])}."


def baseline(study: Study) -> str:
    """`Baseline: precision=fp32 ...`, or that there is none."""
    values = find(study).values
    return f"Baseline: {plain(values_label(dict(values)))}." if values else "Baseline: none."


def kind_of_memory(study: Study) -> str:
    """Which memory is meant."""
    return plain(facts.memory(study))


def processes(study: Study, rows: Sequence[int]) -> str:
    """On a CPU, what `gpus` then means."""
    runs = study.configurations["run"].to_numpy()[np.asarray(rows, dtype=np.int64)]
    on_cpu = (study.frame["hardware.device"].iloc[runs] == "cpu").any()
    return "Here gpus = processes on a CPU." if on_cpu else ""


def sentences(*parts: str) -> str:
    return " ".join(part for part in parts if part)
