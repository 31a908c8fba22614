"""What the other tables do not show: records that could not be used, and runs without one yet."""

from __future__ import annotations

import pandas as pd

from analysis.study import Study
from analysis.table import Column, Table


def build(study: Study) -> Table | None:
    """One row per problem or unfinished run; None where there is neither."""
    rows = [("left out", p.where, p.message) for p in study.loaded.problems]
    rows += [(u.state.state, str(u.run_dir), str(u)) for u in study.loaded.unfinished]
    if not rows:
        return None
    return Table(
        name="left_out",
        title="Not in the tables",
        frame=pd.DataFrame(rows, columns=["kind", "where", "message"], dtype=object),
        columns=(Column("kind", "kind"), Column("where", "where"), Column("message", "message")),
        facts=(
            f"{len(study.loaded.problems)} left out or partly left out, "
            f"{len(study.loaded.unfinished)} runs without a record.",
        ),
    )
