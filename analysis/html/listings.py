"""What the page says about single runs: how they differ, how to repeat them, why they stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.axes import IGNORED, text
from analysis.cells import plain
from analysis.frame import as_frame
from analysis.study import Study
from analysis.table import Column, Table

# Rows of a table in the page; the files hold all of them.
MOST_ROWS = 1000

# Log lines and characters shown of a failed run.
TAIL_LINES = 40
TAIL_CHARACTERS = 6000


def _config_columns(frame: pd.DataFrame) -> list[str]:
    return [
        c
        for c in frame.columns
        if c.startswith("config.")
        and not any(c == f"config.{k}" or c.startswith(f"config.{k}.") for k in IGNORED)
    ]


def _distinct(column: pd.Series[Any]) -> int:
    return int(column.nunique(dropna=False))


def differences(study: Study) -> Table | None:
    """Every config key that is not the same in all runs; None where there is none."""
    frame = study.frame
    names = [c for c in _config_columns(frame) if _distinct(frame[c]) > 1]
    if not names:
        return None
    data: dict[str, Any] = {"run_id": frame["run_id"].to_numpy()}
    for name in names:
        data[name] = frame[name].to_numpy(dtype=object)
    columns = [Column("run_id", "run")]
    columns += [Column(n, n.removeprefix("config."), missing="null") for n in names]
    return Table(
        name="differences",
        title="Configuration differences",
        frame=as_frame(data),
        columns=tuple(columns),
        facts=(f"The {len(names)} config keys that are not the same in all runs.",),
    )


def common_config(study: Study) -> list[tuple[str, str]]:
    """The config keys with one value in all runs, in order."""
    frame = study.frame
    if not len(frame):
        return []
    same = [c for c in _config_columns(frame) if _distinct(frame[c]) == 1]
    return [(c.removeprefix("config."), plain(text(frame[c].iat[0]))) for c in sorted(same)]


def commands(study: Study) -> Table | None:
    """How to repeat each run; None where no run says so."""
    frame = study.frame
    if not frame["command"].notna().any():
        return None
    labels = np.array(study.labels(), dtype=object)[study.configuration]
    data = {
        "label": labels,
        "repeat": frame["repeat"].to_numpy(),
        "run_id": frame["run_id"].to_numpy(),
        "status": frame["status"].to_numpy(),
        "command": frame["command"].to_numpy(),
        "where": frame["where"].to_numpy(),
    }
    columns = [Column("label", "run"), Column("run_id", "id"), Column("status", "status")]
    if frame["repeat"].nunique() > 1:
        columns.insert(1, Column("repeat", "repeat", "count"))
    columns += [Column("command", "command"), Column("where", "directory")]
    return Table(
        name="commands",
        title="How to repeat each run",
        frame=as_frame(data),
        columns=tuple(columns),
        facts=("Each command repeats one run alone; run it in the project's directory.",),
    )


@dataclass(frozen=True)
class StoppedRun:
    """A run that did not complete, with what it left."""

    title: str
    status: str
    facts: tuple[tuple[str, str], ...]
    tail: str


def _tail(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    lines = value[-TAIL_CHARACTERS:].splitlines()[-TAIL_LINES:]
    return "\n".join(plain(line) for line in lines)


_FACTS = (
    ("run_id", "run"),
    ("phase", "phase"),
    ("error.type", "error"),
    ("error.message", "message"),
    ("error.rank", "rank"),
    ("error.signal", "signal"),
    ("error.exit_code", "exit code"),
    ("error.log", "log"),
    ("command", "command"),
    ("where", "directory"),
)


def stopped_runs(study: Study, most: int = 100) -> list[StoppedRun]:
    """The first runs that did not complete, with cause and the end of their log."""
    frame = study.frame
    labels = study.labels()
    found = []
    for i in np.flatnonzero(~study.completed).tolist()[:most]:
        facts = []
        for name, word in _FACTS:
            value: Any = frame[name].to_numpy()[i]
            if not pd.isna(value):
                facts.append((word, plain(text(value))))
        tail = _tail(frame["error.log_tail"].iat[i]) or _tail(frame["error.traceback"].iat[i])
        title = plain(labels[int(study.configuration[i])])
        found.append(StoppedRun(title, str(frame["status"].iat[i]), tuple(facts), tail))
    return found


def environment(study: Study) -> list[tuple[str, str]]:
    """Hardware and software, with all values that occur."""
    frame = study.frame
    found = []
    for column in frame.columns:
        if not column.startswith(("hardware.", "software.")):
            continue
        values = [plain(text(v)) for v in pd.unique(frame[column].dropna())]
        values = [v for v in values if v not in ("", "[]")]
        if values:
            shown = ", ".join(values[:6])
            more = f" and {len(values) - 6} more" if len(values) > 6 else ""
            found.append((column.replace(".", " ", 1).replace("_", " "), shown + more))
    return found
