"""Why a configuration is compared with none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.axes import Codes, label, text
from analysis.study import Study


def _another(study: Study, name: str, row: int) -> str:
    """`the baseline has another machine (A100)`."""
    if name != "batch":
        return f"the baseline has another {name} ({text(study.configurations[name].iat[row])})"
    batch = float(study.configurations["global_batch"].to_numpy()[row])
    return f"the baseline has another global batch ({f'{batch:.0f}' if batch == batch else '?'})"


def reasons(
    study: Study,
    values: Mapping[str, str],
    candidate: Codes,
    loose: Codes,
    context: Mapping[str, Codes],
    without_pairs: npt.NDArray[np.bool_],
) -> list[str]:
    """For each configuration, why it cannot be compared; "" where it can.

    Args:
        values: axis -> value; what the baseline is.
        candidate: for each configuration, the row of its baseline; -1 where there is none.
        loose: the same, where the context need not agree.
        context: what of the context must agree -> its codes.
        without_pairs: whether no repeat completed in both.
    """
    rows = study.configurations
    done = rows["completed"].to_numpy() > 0
    status, why = rows["status"].to_numpy(), rows["reason"].to_numpy()
    missing = f"no run with {label(dict[str, Any](values))} that agrees in all else"
    found = [""] * len(rows)
    for i in np.flatnonzero((candidate < 0) | ~done[candidate] | (without_pairs & done)).tolist():
        base, other = candidate[i], loose[i]
        if base >= 0 and not done[base]:
            found[i] = f"its baseline did not complete ({status[base]}: {why[base]})"
            continue
        if base >= 0:
            found[i] = "no repeat, of one seed and number, completed both of it and of its baseline"
            continue
        found[i] = missing
        for name, part in context.items():
            if other >= 0 and part[i] != part[other]:
                found[i] = _another(study, name, other)
                break
    return found
