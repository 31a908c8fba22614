"""T4, effect of gradient checkpointing: memory, time and loss, on and off."""

from __future__ import annotations

from analysis.study import Study
from analysis.table import Table
from analysis.tables.effect import build_effect


def build(study: Study) -> Table | None:
    """One row per checkpointed configuration; None where ckpt does not vary."""
    return build_effect(
        study,
        "ckpt",
        name="checkpointing",
        title="T4 Effect of gradient checkpointing, all else equal",
    )
