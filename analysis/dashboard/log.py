"""Tables and figures of a sweep, logged to its W&B group as one more run."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis import figures
from analysis.dashboard.client import wandb_module
from analysis.dashboard.keys import REPORT_JOB
from analysis.report import Report
from analysis.table import Table
from sweeper.errors import UserError

Mode = Literal["online", "offline"]

# Rows of a table that W&B is sent; its own limit is 10,000.
MOST_ROWS = 2000


def sweep_name(report: Report) -> str:
    """The sweep that all runs belong to: it is their W&B group.

    Raises:
        UserError: there is none, or several.
    """
    names = [str(name) for name in pd.unique(report.study.frame["sweep"])]
    if len(names) != 1:
        raise UserError(
            "--log", f"the runs belong to {len(names)} sweeps", "name the directory of one sweep"
        )
    return names[0]


def _cell(value: Any) -> Any:
    if value is None or value != value:
        return None
    return value.item() if hasattr(value, "item") else value


def _table(wandb: Any, table: Table) -> Any:
    """Raw figures in base units, the unit in the column's name."""
    names = list(dict.fromkeys(column.name for column in table.columns))
    frame = table.frame[names].head(MOST_ROWS)
    data = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    heads = [name.removeprefix("axis.") for name in names]
    return wandb.Table(columns=heads, data=data, allow_mixed_types=True)


def _images(wandb: Any, report: Report, directory: Path) -> dict[str, Any]:
    found = {}
    for name, module in figures.FIGURES.items():
        path = directory / f"{name}.png"
        if figures.save(name, report.study, path):
            found[f"figures/{name}"] = wandb.Image(str(path), caption=module.TITLE)
    return found


def log_report(
    report: Report,
    directory: Path,
    *,
    project: str = "sweeper",
    entity: str | None = None,
    mode: Mode = "offline",
    timeout_s: float = 30.0,
) -> str:
    """Log every table and figure to one run of job type `report` in the sweep's group.

    Logged again, the same run is continued: its id follows from the sweep's name.

    Args:
        directory: where W&B's files and the figures' go (below it, `wandb/` and `figures/`).
        mode: `offline` leaves files that `wandb sync` sends later.

    Returns:
        The W&B run's address, or the directory of its files.

    Raises:
        UserError: the runs belong to several sweeps, or the server does not take them.
    """
    group = sweep_name(report)
    wandb = wandb_module(mode)
    pictures = directory / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        init_timeout=timeout_s,
        finish_timeout=timeout_s,
        finish_timeout_raises=True,
        x_disable_stats=True,
    )
    try:
        run = wandb.init(
            project=project,
            entity=entity,
            group=group,
            job_type=REPORT_JOB,
            name=f"report of {group}"[:128],
            id=f"report-{hashlib.sha256(group.encode()).hexdigest()[:10]}",
            resume="allow",
            config={"job": REPORT_JOB, "sweep": group},
            dir=os.fspath(directory),
            mode=mode,
            settings=settings,
        )
        run.log({f"tables/{t.name}": _table(wandb, t) for t in report.tables})
        run.log(_images(wandb, report, pictures))
        address, files = run.url, str(Path(run.dir).parent)
        run.finish()
    except (wandb.Error, TimeoutError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            "dashboard --log", f"W&B did not take it ({reason})", "leave out --online for files"
        ) from error
    return str(address) if mode == "online" else files
