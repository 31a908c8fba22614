"""Several GPUs but little speed-up: the cause that the parts of the step show."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.advice.advice import Advice, duration, limited, named, percent, run_id
from analysis.axes import text
from analysis.scaling import GOOD, Curves, causes, curves
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


def _line(study: Study, found: Curves, row: int, cause: str) -> str:
    base = int(found.found.base[row])
    return (
        f"{named(study, row)}: {found.kind} scaling, speed-up {found.speed_up[row]:.2f} on "
        f"{found.gpus[row]:.0f}, efficiency {percent(found.efficiency[row])}; {cause}. A step: "
        f"{_parts(study, row)}; on 1 GPU: {_parts(study, base)} (run {run_id(study, base)})"
    )


def crowded(study: Study) -> npt.NDArray[np.int64]:
    """Completed configurations of more processes than the machine has cores, the worst first."""
    rows = study.configurations
    runs = rows["run"].to_numpy()
    cores = study.mean("hardware.cpu_count")
    ranks = study.mean("hardware.world_size") / study.mean("hardware.nodes")
    on_cpu = study.frame["hardware.device"].iloc[runs].eq("cpu").to_numpy()
    done = rows["completed"].to_numpy() > 0
    found = np.flatnonzero(on_cpu & done & (ranks > cores))
    return found[np.argsort(-(ranks[found] / cores[found]), kind="stable")]


def _taking_turns(study: Study, rows: npt.NDArray[np.int64]) -> list[Advice]:
    if not len(rows):
        return []
    cores, ranks = study.mean("hardware.cpu_count"), study.mean("hardware.world_size")
    lines = [
        f"{named(study, row)}: {ranks[row]:.0f} processes, {cores[row]:.0f} cores"
        for row in rows.tolist()
    ]
    return [
        Advice(
            RULE,
            f"{len(rows)} configurations ran more processes than the machine has cores.",
            "Do not read their scaling as that of GPUs: the processes took turns.",
            limited(lines),
            tuple(run_id(study, row) for row in rows.tolist()),
        )
    ]


def advise(study: Study) -> list[Advice]:
    """One piece of advice for each cause, over strong and weak scaling.

    Of processes that shared cores the parts of the step say nothing about GPUs.
    """
    if study.axis("gpus") is None:
        return []
    sharing = crowded(study)
    grouped: dict[str, list[tuple[float, int, str]]] = {}
    for found in (curves(study, "strong"), curves(study, "weak")):
        for row, cause in enumerate(causes(study, found)):
            on_curve = found.curve[row] >= 0 and found.gpus[row] > 1 and row not in sharing
            if cause is not None and on_curve and found.efficiency[row] < GOOD:
                line = _line(study, found, row, cause)
                name = cause.rsplit(": ", 1)[0]
                grouped.setdefault(name, []).append((float(found.efficiency[row]), row, line))
    advice = _taking_turns(study, sharing)
    for name, items in sorted(grouped.items(), key=lambda item: -len(item[1])):
        items.sort(key=lambda item: item[0])
        gpus = sorted({text(study.configurations["axis.gpus"].iat[row]) for _, row, _ in items})
        advice.append(
            Advice(
                RULE,
                f"{len(items)} configurations on {' or '.join(gpus)} GPUs scale poorly, most of "
                f"all through {name}.",
                _ACTIONS.get(name, "Look at that part of the step first."),
                limited([line for _, _, line in items]),
                tuple(dict.fromkeys(run_id(study, row) for _, row, _ in items)),
            )
        )
    return advice
