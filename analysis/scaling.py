"""How a step scales with the number of GPUs, and where the loss comes from.

    strong   the global batch stays: N GPUs share it, the ideal step takes 1/N of the time
    weak     the batch per GPU stays: the ideal step takes as long and does N times the work
    speed-up = samples per s on N GPUs / samples per s on 1; efficiency = speed-up / N

Always against the run on 1 GPU; where there is none, there is no figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.axes import Codes, codes, combine, resolve
from analysis.baseline import (
    Match,
    axis_codes,
    axis_values,
    change,
    context_codes,
    match,
    others,
)
from analysis.study import CONTEXT, Floats, Study

Scaling = Literal["strong", "weak"]

# Efficiency from which no cause of a loss is looked for.
GOOD = 0.9

_BATCH = ("batch.size", "batch.per_gpu")


@dataclass(frozen=True)
class Curves:
    """Configurations that differ in the number of GPUs alone.

    Attributes:
        kind: what stays as GPUs are added.
        curve: for each configuration, the curve it lies on; -1 where it lies alone.
        gpus: for each configuration.
        found: each against the run on 1 GPU.
        speed_up: NaN where there is no run on 1 GPU.
    """

    kind: Scaling
    curve: Codes
    gpus: Floats
    found: Match
    speed_up: Floats

    @property
    def efficiency(self) -> Floats:
        return self.speed_up / self.gpus


def curves(study: Study, kind: Scaling) -> Curves:
    """Find the curves and the speed-up on them."""
    return study.remembered(("curves", kind), lambda: _curves(study, kind))


def _curves(study: Study, kind: Scaling) -> Curves:
    count = len(study.configurations)
    gpus = resolve(study.frame, "gpus")
    number = np.array([float(v or 1) for v in axis_values(study, gpus)], dtype=np.float64)
    batch = study.configurations["global_batch"]
    fixed = batch if kind == "strong" else batch / number
    named = [gpus, *(axis for axis in study.axes if axis.name in _BATCH)]
    agree = [*others(study, named), codes(fixed)]
    found = match(study, {"gpus": "1"}, agree=agree)
    context = [context_codes(study, name) for name in CONTEXT]
    group = combine([*agree, *context], count)
    on_curve = combine([group, axis_codes(study, gpus)], count)
    sizes = np.bincount(group[np.unique(on_curve, return_index=True)[1]], minlength=count)
    curve = np.where((sizes[group] > 1) & batch.notna().to_numpy(), group, -1)
    speed_up = change(study, found, "time.samples_per_s") + 1.0
    return Curves(kind, curve, number, found, speed_up)


def causes(study: Study, found: Curves) -> list[str | None]:
    """For each configuration of low efficiency, the part of the step that loses most.

    What each part takes beyond its ideal (1/N of its time on 1 GPU in strong scaling, the same time
    in weak scaling) is its share of the loss.
    """
    parts = {
        name: study.mean(f"time.parts.{name}_s")
        for name in ("data_wait", "forward", "backward", "communication", "optimizer", "rest")
    }
    base = found.found.base
    scale = 1 / found.gpus if found.kind == "strong" else np.ones_like(found.gpus)
    lost: dict[str, Floats] = {}
    for name, seconds in parts.items():
        own, ideal = np.nan_to_num(seconds), np.nan_to_num(seconds[base]) * scale
        lost[name] = own - ideal
    compute = (
        "forward and backward (too small a batch per GPU)"
        if found.kind == "strong"
        else "forward and backward (slower on each GPU)"
    )
    groups = {
        "communication": lost["communication"],
        "waiting for data": lost["data_wait"],
        compute: lost["forward"] + lost["backward"],
        "optimizer (not split over GPUs)": lost["optimizer"],
        "rest of the step": lost["rest"],
    }
    known = ~np.isnan(parts["forward"]) & (base >= 0)
    total = np.sum([np.maximum(value, 0) for value in groups.values()], axis=0)
    low = known & (found.efficiency < GOOD) & (total > 0)
    result: list[str | None] = [None] * len(base)
    for i in np.flatnonzero(low).tolist():
        name = max(groups, key=lambda key: groups[key][i])
        result[i] = f"{name}: {100 * groups[name][i] / total[i]:.0f} % of the loss"
    return result


def serial_share(found: Curves) -> Floats:
    """For each configuration, the share of the work that did not speed up.

    (1/S - 1/N) / (1 - 1/N) for speed-up S on N GPUs (Karp and Flatt, CACM 33(5), 1990). NaN where
    the speed-up is more than N: there is no such share.
    """
    n = found.gpus
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (1 / found.speed_up - 1 / n) / (1 - 1 / n)
    return np.where((n > 1) & (share >= 0), share, np.nan)


@dataclass(frozen=True)
class Amdahl:
    """t(N) = t(1) (s + (1 - s) / N), fitted to one strong-scaling curve.

    Attributes:
        serial: s, by least squares over the curve.
        lowest, highest: s of the single points.
        most_gpus: the fit says nothing beyond this number.
    """

    serial: float
    lowest: float
    highest: float
    most_gpus: int

    def __str__(self) -> str:
        spread = f"{100 * self.lowest:.1f} to {100 * self.highest:.1f} % by single points"
        line = f"{100 * self.serial:.1f} % of the step does not speed up ({spread})"
        limit = f"; speed-up stays below {1 / self.serial:.1f}" if self.serial > 0 else ""
        return f"{line}{limit}; fitted up to {self.most_gpus} GPUs, no statement beyond"


def fit_amdahl(found: Curves, rows: Codes) -> Amdahl | None:
    """Fit one curve; None for fewer than 2 points beyond 1 GPU, or more than linear speed-up.

    Args:
        rows: the configurations of the curve.
    """
    single = serial_share(found)[rows]
    beyond = found.gpus[rows] > 1
    if beyond.sum() < 2 or np.isnan(single[beyond]).any():
        return None
    rows, single = rows[beyond], single[beyond]
    n, s = found.gpus[rows], found.speed_up[rows]
    weight = 1 - 1 / n
    serial = float(np.sum((1 / s - 1 / n) * weight) / np.sum(weight**2))
    return Amdahl(serial, float(single.min()), float(single.max()), int(n.max()))
