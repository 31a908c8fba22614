"""A piece of advice, with what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from analysis.quantities import choose
from analysis.study import Study

T = TypeVar("T")

# Lines of evidence under one piece of advice; the rest is counted.
MOST_LINES = 6


@dataclass(frozen=True)
class Advice:
    """What is wrong, what would help, and the figures that say so.

    Attributes:
        rule: name of the rule that fired.
        finding: what the runs show.
        action: what to change, and what that did in these runs.
        evidence: figures with run ids, the strongest first; never empty.
        runs: ids of the runs that it is about.
    """

    rule: str
    finding: str
    action: str
    evidence: tuple[str, ...]
    runs: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"{self.rule}: advice without evidence")

    def __str__(self) -> str:
        lines = "".join(f"\n    - {line}" for line in self.evidence)
        return f"{self.finding}\n  {self.action}{lines}"


def speaker(study: Study, row: int) -> int:
    """The row of the frame that speaks for a configuration."""
    return int(study.configurations["run"].to_numpy()[row])


def run_id(study: Study, row: int) -> str:
    """The id of the run that speaks for a configuration."""
    return str(study.frame["run_id"].to_numpy()[speaker(study, row)])


def named(study: Study, row: int) -> str:
    """`precision=amp ckpt=on (run a1b2c3)`."""
    return f"{study.labels()[row]} (run {run_id(study, row)})"


def evidence(items: Sequence[T], line: Callable[[T], str]) -> tuple[str, ...]:
    """One line for each of the first items, and how many more there are."""
    lines = tuple(line(item) for item in items[:MOST_LINES])
    rest = len(items) - MOST_LINES
    return (*lines, f"and {rest:,} more like these") if rest > 0 else lines


def size(value: float) -> str:
    """`12.3 MiB`"""
    scale = choose("bytes", np.array([value]))
    return f"{scale.text(value)} {scale.unit}"


def configurations(count: int) -> str:
    """`1 configuration`, `2 configurations`"""
    return f"{count:,} configuration{'' if count == 1 else 's'}"


def percent(share: float, signed: bool = False) -> str:
    """`12 %`, of a share of 0.12."""
    return f"{100 * share:+.0f} %" if signed else f"{100 * share:.0f} %"


def duration(value: float) -> str:
    """`41.2 ms`"""
    scale = choose("seconds", np.array([value]))
    return f"{scale.text(value)} {scale.unit}"


def rate(value: float) -> str:
    """`1098 samples per s`"""
    return f"{value:.0f} samples per s" if value >= 100 else f"{value:.3g} samples per s"
