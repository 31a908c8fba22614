"""A table before it is rendered: a frame of raw figures, and how each column is to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

Kind = Literal[
    "text",
    "count",  # whole number
    "bytes",  # B, shown in KiB, MiB or GiB
    "seconds",  # s, shown in µs, ms or s
    "rate",  # per second
    "loss",
    "factor",  # how many times
    "share",  # percent of a whole
    "difference",  # of any size, shown as 1.2e-07
    "change",  # percent more (+) or less (-) than something
    "number",
]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: column of the table's frame that holds the raw figure in its base unit (B, s, 1); the
            unit is in the name, which is also the heading of the CSV file.
        header: heading everywhere else, without unit; a line break where a narrow one is wanted.
        kind: how the figure is shown.
        shown: column of texts that stand in for the figure where they are present.
        upper: column with the upper end, where this one holds the lower end of a range.
        deviation: column that is shown as "± value" instead, where it is present.
        scale: columns with the same scale share one unit.
        drop: columns with the highest number leave the terminal first when width is short; 0 stays.
        missing: what stands where nothing was measured.
        decimals: a fixed number of them; None: chosen for the column.
    """

    name: str
    header: str
    kind: Kind = "text"
    shown: str | None = None
    upper: str | None = None
    deviation: str | None = None
    scale: str = ""
    drop: int = 0
    missing: str = "–"
    decimals: int | None = None

    @property
    def left(self) -> bool:
        """Whether its cells are aligned to the left."""
        return self.kind == "text"


@dataclass(frozen=True)
class Table:
    """Figures, columns, and the lines that stand above and below them.

    Attributes:
        name: of its files, and on the command line.
        title: one line.
        frame: one row per row of the table; raw figures in base units, NaN or None where absent.
        facts: what one must know to read it: baseline, machine, kind of memory, repeats.
        notes: explanations of the marks in the rows.
    """

    name: str
    title: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
