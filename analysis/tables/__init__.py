"""All tables, in the order in which a report shows them.

A table is a function from a study to a table, in a file of its own; `docs/add-a-table.md` says how
to add one. A function that has nothing to show returns None.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.study import Study
from analysis.table import Table
from analysis.tables import (
    checkpointing,
    claims,
    combined,
    failures,
    left_out,
    memory,
    precision,
    runs,
    scaling,
    step_time,
)

# Name of the table, which is that of its files -> what builds it.
TABLES: dict[str, Callable[[Study], Table | None]] = {
    "runs": runs.build,
    "memory": memory.build,
    "step_time": step_time.build,
    "precision": precision.build,
    "checkpointing": checkpointing.build,
    "combined": combined.build,
    "scaling": scaling.build,
    "claims": claims.build,
    "failures": failures.build,
    "left_out": left_out.build,
}


def build_all(study: Study) -> list[Table]:
    """Every table that has something to show."""
    built = (build(study) for build in TABLES.values())
    return [table for table in built if table is not None]
