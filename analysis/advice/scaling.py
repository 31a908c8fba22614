"""Several GPUs but little speed-up: the cause that the parts of the step show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.advice.advice import (
    Advice,
    configurations,
    duration,
    evidence,
    named,
    percent,
    run_id,
)
from analysis.scaling import GOOD, Curves, causes, crowded, curves
from analysis.study import Study

RULE = "poor scaling"

_ACTIONS = {
    "communication": "Compute more between exchanges: a larger batch per GPU, or accumulation; a "
    "faster link between the GPUs has the same effect.",
    "waiting for data": "Give each GPU its own share of prepared data, or more loading workers.",
    "forward and backward (too small a batch per GPU)": "Raise the global batch, so that each GPU "
    "keeps enough to do: what one GPU computes did not shrink with its share.",
    "forward and backward (slower on each GPU)": "Look for what the GPUs share (power, cores, "
    "memory bandwidth): each computes slower than one alone.",
    "optimizer (not split over GPUs)": "Shard the optimizer over the GPUs: each one updates all "
    "parameters.",
    "rest of the step": "Look at what the step does outside of its parts: it does not shrink.",
}

_PARTS = ("data_wait", "forward", "backward", "communication", "optimizer", "rest")


def _parts(study: Study, row: int) -> str:
    found = {part: study.mean(f"time.parts.{part}_s")[row] for part in _PARTS}
    known = {part: value for part, value in found.items() if value == value and value > 0}
    largest = sorted(known, key=lambda part: -known[part])[:3]
    return ", ".join(f"{part.replace('_', ' ')} {duration(known[part])}" for part in largest)


class _Point(NamedTuple):
    """A configuration of low efficiency, on its curve."""

    row: int
    found: Curves
    cause: str

    @property
    def efficiency(self) -> float:
        return float(self.found.efficiency[self.row])


def _line(study: Study, point: _Point) -> str:
    row, found = point.row, point.found
    base = int(found.found.base[row])
    return (
        f"{named(study, row)}: {found.kind} scaling, speed-up {found.speed_up[row]:.2f} on "
        f"{found.gpus[row]:.0f}, efficiency {percent(point.efficiency)}; {point.cause}. A step: "
        f"{_parts(study, row)}; on 1 GPU: {_parts(study, base)} (run {run_id(study, base)})"
    )


def _of_cause(study: Study, cause: str, points: list[_Point]) -> Advice:
    points = sorted(points, key=lambda point: point.efficiency)
    gpus = sorted({int(point.found.gpus[point.row]) for point in points})
    told = f"{configurations(len(points))} on {' or '.join(map(str, gpus))} GPUs"
    return Advice(
        RULE,
        f"Poor scaling of {told}, most of all through {cause}.",
        _ACTIONS.get(cause, "Look at that part of the step first."),
        evidence(points, lambda point: _line(study, point)),
        tuple(dict.fromkeys(run_id(study, point.row) for point in points)),
    )


def _taking_turns(study: Study, rows: npt.NDArray[np.int64]) -> list[Advice]:
    if not len(rows):
        return []
    cores, ranks = study.mean("hardware.cpu_count"), study.mean("hardware.world_size")

    def line(row: int) -> str:
        return f"{named(study, row)}: {ranks[row]:.0f} processes, {cores[row]:.0f} cores"

    return [
        Advice(
            RULE,
            f"{configurations(len(rows))} ran more processes than the machine has cores.",
            "Do not read their scaling as that of GPUs: the processes took turns.",
            evidence(rows.tolist(), line),
            tuple(run_id(study, row) for row in rows.tolist()),
        )
    ]


def advise(study: Study) -> list[Advice]:
    """One piece of advice for each cause, over strong and weak scaling.

    Of processes that shared cores the parts of the step say nothing about GPUs.
    """
    if study.axis("gpus") is None:
        return []
    turns = crowded(study)
    sharing = set(turns.tolist())
    grouped: dict[str, list[_Point]] = {}
    for found in (curves(study, "strong"), curves(study, "weak")):
        for row, cause in enumerate(causes(study, found)):
            if cause is None or found.curve[row] < 0 or found.gpus[row] <= 1 or row in sharing:
                continue
            if found.efficiency[row] < GOOD:
                name = cause.rsplit(": ", 1)[0]
                grouped.setdefault(name, []).append(_Point(row, found, cause))
    most_first = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [*_taking_turns(study, turns), *(_of_cause(study, *item) for item in most_first)]
