"""From sweep directories to tables on the screen and in files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from analysis.load import Loaded, load
from analysis.render import FORMATS, terminal
from analysis.study import Question, Study
from analysis.table import Table
from analysis.tables import TABLES, build_all
from sweeper.errors import UserError
from sweeper.record import write_atomic

# Where the tables of a sweep lie, below its directory.
TABLES_DIR = "tables"
FILE_FORMATS = ("markdown", "csv")

# What a terminal shows where nothing else is asked for.
SHOWN = ("runs", "failures", "left_out")

# Width where the output is no terminal.
WIDTH = 132


def terminal_width() -> int:
    """Columns of the terminal, or WIDTH where the output is none."""
    return shutil.get_terminal_size((WIDTH, 40)).columns


class Report:
    """The tables of some runs."""

    def __init__(self, loaded: Loaded, question: Question | None = None) -> None:
        self.loaded = loaded
        self.study = Study(loaded, question)
        self.tables = build_all(self.study)

    @classmethod
    def of(cls, sources: Sequence[Path], question: Question | None = None) -> Report:
        """The report on sweep directories.

        Raises:
            UserError: a directory holds no runs, or the question names an unknown key.
        """
        return cls(load(sources), question)

    def table(self, name: str) -> Table | None:
        """The table of this name, or None where it has nothing to show.

        Raises:
            UserError: there is no such table.
        """
        if name not in TABLES:
            raise UserError(name, "no such table", f"use one of {', '.join(TABLES)}")
        return next((table for table in self.tables if table.name == name), None)

    def write(self, directory: Path, formats: Sequence[str] = FILE_FORMATS) -> list[Path]:
        """Write every table in every format; files of tables that are no more are removed."""
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        present = {table.name: table for table in self.tables}
        for name in TABLES:
            for ending, render in (FORMATS[f] for f in formats):
                path = directory / f"{name}.{ending}"
                if name in present:
                    write_atomic(path, render(present[name]))
                    written.append(path)
                else:
                    path.unlink(missing_ok=True)
        return written

    def text(self, names: Sequence[str] = SHOWN, *, width: int | None = None) -> str:
        """Tables for a terminal."""
        width = width or terminal_width()
        found = [table for table in map(self.table, names) if table is not None]
        return "\n".join(terminal(table, width=width) for table in found)


def write_tables(sweep_dir: Path, question: Question | None = None) -> list[Path]:
    """Write the tables of one sweep below its directory; returns the files.

    Raises:
        UserError: the directory holds no runs.
    """
    return Report.of([sweep_dir], question).write(sweep_dir / TABLES_DIR)


def terminal_summary(
    sweep_dir: Path, question: Question | None = None, *, width: int | None = None
) -> str:
    """The comparison of one sweep's runs, for a terminal, and what is not in it.

    Raises:
        UserError: the directory holds no runs.
    """
    return Report.of([sweep_dir], question).text(width=width)
