"""How a step scales with the number of GPUs, and where the loss comes from.

    strong   the global batch stays: N GPUs share it, the ideal step takes 1/N of the time
    weak     the batch per GPU stays: the ideal step takes as long and does N times the work
    speed-up = samples per s on N GPUs / samples per s on 1; efficiency = speed-up / N

Always against the run on 1 GPU; where there is none, there is no figure. Processes that share the
cores of a CPU take turns: how they scale says nothing about GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Codes, codes, combine, resolve
from analysis.baseline import (
    Match,
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

SHARED_CORES = "processes share cores"

_BATCH = ("batch.size", "batch.per_gpu")


@dataclass(frozen=True)
class Curves:
    """Configurations that differ in the number of GPUs alone.

    Attributes:
        kind: what stays as GPUs are added.
        curve: for each configuration, the curve it lies on; -1 where it lies alone.
        gpus: for each configuration; NaN where it is not known.
        found: each against the run on 1 GPU.
        speed_up: NaN where there is no run on 1 GPU, or the number of GPUs is not known.
    """

    kind: Scaling
    curve: Codes
    gpus: Floats
    found: Match
    speed_up: Floats

    @property
    def efficiency(self) -> Floats:
        return self.speed_up / self.gpus


def gpu_counts(study: Study) -> Floats:
    """For each configuration the number of GPUs; NaN where it is absent or no such number."""
    found = pd.to_numeric(axis_values(study, resolve(study.frame, "gpus")), errors="coerce")
    number = found.to_numpy(dtype=np.float64)
    return np.where((number >= 1) & np.isfinite(number), number, np.nan)


def share_cores(study: Study) -> npt.NDArray[np.bool_]:
    """The completed configurations of more processes than the machine has cores."""
    return np.greater(_processes_per_core(study), 1)


def _processes_per_core(study: Study) -> Floats:
    """For each completed configuration on a CPU; NaN for all others and where it is not known."""
    rows = study.configurations
    on_cpu = study.frame["hardware.device"].iloc[rows["run"].to_numpy()].eq("cpu").to_numpy()
    ranks = study.mean("hardware.world_size") / np.nan_to_num(study.mean("hardware.nodes"), nan=1)
    ratio = ranks / study.mean("hardware.cpu_count")
    return np.where(on_cpu & (rows["completed"].to_numpy() > 0), ratio, np.nan)


def crowded(study: Study) -> Codes:
    """Rows of the configurations that `share_cores` tells of, the worst first."""
    ratio = _processes_per_core(study)
    found = np.flatnonzero(ratio > 1)
    return found[np.argsort(-ratio[found], kind="stable")]


def curves(study: Study, kind: Scaling) -> Curves:
    """Find the curves and the speed-up on them."""
    return study.remembered(("curves", kind), lambda: _curves(study, kind))


def _curves(study: Study, kind: Scaling) -> Curves:
    count = len(study.configurations)
    gpus = resolve(study.frame, "gpus")
    number = gpu_counts(study)
    batch = study.configurations["global_batch"]
    fixed = batch if kind == "strong" else batch / number
    named = [gpus, *(axis for axis in study.axes if axis.name in _BATCH)]
    agree = [*others(study, named), codes(fixed)]
    found = match(study, {"gpus": "1"}, agree=agree)
    context = [context_codes(study, name) for name in CONTEXT]
    group = combine([*agree, *context], count)
    on_curve = combine([group, codes(pd.Series(number))], count)
    known = batch.notna().to_numpy() & ~np.isnan(number)
    points = np.unique(np.where(known, on_curve, -1), return_index=True)[1]
    sizes = np.bincount(group[points[known[points]]], minlength=count)
    curve = np.where((sizes[group] > 1) & known, group, -1)
    speed_up = change(study, found, "time.samples_per_s") + 1.0
    return Curves(kind, curve, number, found, np.where(np.isnan(number), np.nan, speed_up))


def causes(study: Study, found: Curves) -> list[str | None]:
    """For each configuration of low efficiency, the part of the step that loses most.

    What each part takes beyond its ideal (1/N of its time on 1 GPU in strong scaling, the same time
    in weak scaling) is its share of the loss. Of processes that share cores it says nothing.
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
    low = (base >= 0) & (found.efficiency < GOOD)
    shared = low & share_cores(study)
    total = np.sum([np.maximum(value, 0) for value in groups.values()], axis=0)
    told = low & ~shared & ~np.isnan(parts["forward"]) & (total > 0)
    result: list[str | None] = [SHARED_CORES if here else None for here in shared]
    for i in np.flatnonzero(told).tolist():
        name = max(groups, key=lambda key: groups[key][i])
        result[i] = f"{name}: {100 * groups[name][i] / total[i]:.0f} % of the loss"
    return result


def _single_shares(found: Curves) -> Floats:
    """(1/S - 1/N) / (1 - 1/N) for speed-up S on N GPUs; NaN for one GPU.

    Below 0 where the speed-up is more than N, above 1 where N GPUs are slower than one.
    """
    n = found.gpus
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n > 1, (1 / found.speed_up - 1 / n) / (1 - 1 / n), np.nan)


def serial_share(found: Curves) -> Floats:
    """For each configuration, the share of the work that did not speed up, within 0 to 1.

    Karp and Flatt, CACM 33(5), 1990. NaN where there is no such share: the speed-up is more than N,
    or less than 1.
    """
    share = _single_shares(found)
    return np.where((share >= 0) & (share <= 1), share, np.nan)


@dataclass(frozen=True)
class Amdahl:
    """t(N) = t(1) (s + (1 - s) / N), fitted to one strong-scaling curve.

    Attributes:
        serial: s, by least squares over the curve.
        lowest, highest: s of the single points.
        most_gpus: the largest number of GPUs it was fitted to.
        slower: numbers of GPUs that are slower than one. The law knows no such curve: where there
            are any, `serial` means nothing.
    """

    serial: float
    lowest: float
    highest: float
    most_gpus: int
    slower: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.slower:
            numbers = " and ".join(map(str, self.slower))
            return f"Amdahl's law does not describe this curve: {numbers} GPUs are slower than 1"
        spread = f"{100 * self.lowest:.1f} to {100 * self.highest:.1f} % by single points"
        line = f"{100 * self.serial:.1f} % of the step does not speed up ({spread})"
        if 0 < self.serial <= 1:
            line += f"; this fit's limit is a speed-up of {1 / self.serial:.1f}"
        return f"{line}; fitted over 1 to {self.most_gpus} GPUs, not tested beyond"


def fit_amdahl(found: Curves, rows: Codes, shared: npt.NDArray[np.bool_]) -> Amdahl | None:
    """Fit one curve; None for fewer than 2 points beyond 1 GPU, or more than linear speed-up.

    Args:
        rows: the configurations of the curve.
        shared: for each configuration, whether its processes share cores; such points are left out.
    """
    rows = rows[(found.gpus[rows] > 1) & np.isfinite(found.speed_up[rows]) & ~shared[rows]]
    single, n, s = _single_shares(found)[rows], found.gpus[rows], found.speed_up[rows]
    slower = tuple(int(number) for number in np.unique(n[s < 1]))
    if len(rows) < 2 or ((single < 0).any() and not slower):
        return None
    weight = 1 - 1 / n
    serial = float(np.sum((1 / s - 1 / n) * weight) / np.sum(weight**2))
    return Amdahl(serial, float(single.min()), float(single.max()), int(n.max()), slower)
