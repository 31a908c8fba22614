"""One unit and one number of decimals for a whole column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.table import Kind

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """How raw figures become text: divided, rounded, signed."""

    divisor: float
    unit: str
    decimals: int
    signed: bool = False
    scientific: bool = False

    def text(self, value: float) -> str:
        """The figure without its unit; a rounded -0 has no sign."""
        if self.scientific:
            return f"{value:.1e}" if value else "0"
        shown = f"{value / self.divisor:.{self.decimals}f}"
        if shown.startswith("-") and not shown.strip("-0."):
            shown = shown[1:]
        return f"+{shown}" if self.signed and shown.strip("0.") and shown[0] != "-" else shown


def _unit(kind: Kind, typical: float) -> tuple[float, str]:
    if kind == "bytes":
        for size, name in ((GIB, "GiB"), (MIB, "MiB")):
            if typical >= size:
                return size, name
        return KIB, "KiB"
    if kind == "seconds":
        for size, name in ((1.0, "s"), (1e-3, "ms")):
            if typical >= 0.5 * size:
                return size, name
        return 1e-6, "µs"
    if kind in ("share", "change"):
        return 1.0, "%"
    return 1.0, ""


def _decimals(smallest: float, digits: int, most: int) -> int:
    """Decimals that give the smallest figure `digits` significant digits, within 0..most."""
    if smallest <= 0:
        return most
    return min(most, max(0, digits - 1 - math.floor(math.log10(smallest))))


def choose(kind: Kind, values: Floats) -> Scale:
    """The scale for all of `values` (raw, base units; NaN is passed over)."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    typical = float(np.median(sizes)) if len(sizes) else 0.0
    divisor, unit = _unit(kind, typical)
    smallest = float(sizes.min()) / divisor if len(sizes) else 0.0
    match kind:
        case "count":
            return Scale(1.0, "", 0)
        case "difference":
            return Scale(1.0, "", 1, scientific=True)
        case "change":
            return Scale(divisor, unit, 1, signed=True)
        case "share":
            return Scale(divisor, unit, 1)
        case "bytes":
            decimals = max(1, _decimals(typical / divisor, 3, 2))
            return Scale(divisor, unit, 2 if unit == "GiB" else decimals)
        case "loss":
            return Scale(1.0, "", max(4, _decimals(smallest, 3, 8)))
        case "factor":
            return Scale(1.0, "", _decimals(typical, 3, 3))
        case "rate":
            return Scale(1.0, "", _decimals(smallest, 3, 2))
        case "seconds":
            return Scale(divisor, unit, _decimals(typical / divisor, 3, 3))
        case _:
            return Scale(1.0, "", _decimals(smallest, 4, 4))
