"""T3, effect of mixed precision: memory, time and loss against the baseline's precision."""

from __future__ import annotations

from analysis.study import Study
from analysis.table import Table
from analysis.tables.effect import build_effect


def build(study: Study) -> Table | None:
    """One row per configuration of another precision; None where precision does not vary."""
    return build_effect(
        study, "precision", name="precision", title="T3 Effect of precision, all else equal"
    )
