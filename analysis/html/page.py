"""The report as one HTML file that needs nothing but a browser."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from analysis import advice, facts, figures
from analysis.axes import label
from analysis.baseline import find
from analysis.cells import plain
from analysis.figures.figure import Figure, Omitted
from analysis.html import PAGE_FILE, findings, listings
from analysis.html.listings import MOST_ROWS
from analysis.render import html_fragment
from analysis.report import Report
from analysis.study import Study
from analysis.table import Table
from sweeper.record import write_atomic

_HERE = Path(__file__).parent

# Tables that the page shows in a place of their own, not among the others.
_APART = ("left_out",)


@lru_cache(maxsize=1)
def _template() -> Template:
    # Everything is escaped unless it is Markup: a config value is text, whatever is in it.
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


def _table(table: Table) -> Markup:
    """A table of at most MOST_ROWS rows; the renderer escapes what is in it."""
    count = len(table.frame)
    if count > MOST_ROWS:
        note = f"The first {MOST_ROWS:,} of {count:,} rows; {table.name}.csv holds all of them."
        table = replace(table, frame=table.frame.head(MOST_ROWS), notes=(*table.notes, note))
    fragment = html_fragment(replace(table, name=f"table-{table.name}"))
    return Markup(fragment)  # escaped by html_fragment


def _title(study: Study) -> str:
    sweeps = [plain(str(v)) for v in pd.unique(study.frame["sweep"])] if len(study.frame) else []
    if len(sweeps) == 1:
        return f"Sweep {sweeps[0]}"
    return f"{len(sweeps)} sweeps compared" if sweeps else "No runs"


def _times(study: Study) -> str:
    """When the runs started and ended, as far as they say so."""
    started, finished = study.frame["started_at"].dropna(), study.frame["finished_at"].dropna()
    if not len(started) or not len(finished):
        return ""
    first, last = (str(v)[:16].replace("T", " ") for v in (started.min(), finished.max()))
    return f"{first} to {last} UTC"


def _context(report: Report) -> dict[str, Any]:
    study = report.study
    some = len(study.configurations) > 0
    drawn = figures.draw_all(study)
    match = find(study) if some else None
    return {
        "title": _title(study),
        "what": findings.what_was_run(study) if some else "There are no runs.",
        "times": _times(study),
        "facts": [facts.outcome(study), facts.machine(study), facts.software(study)]
        if some
        else [],
        "baseline": facts.baseline(match) if match else "Baseline: none.",
        "baseline_label": label(dict(match.values)) if match else "",
        "findings": findings.summarize(study),
        "advice": advice.advise(study),
        "figures": [f for f in drawn if isinstance(f, Figure)],
        "omitted": [f for f in drawn if isinstance(f, Omitted)],
        "tables": [(t, _table(t)) for t in report.tables if t.name not in _APART],
        "left_out": next((_table(t) for t in report.tables if t.name == "left_out"), None),
        "differences": _optional(listings.differences(study)) if some else None,
        "common": listings.common_config(study),
        "commands": _optional(listings.commands(study)) if some else None,
        "stopped": listings.stopped_runs(study) if some else [],
        "stopped_count": int((~study.completed).sum()) if some else 0,
        "environment": listings.environment(study),
        "css": Markup((_HERE / "page.css").read_text("utf-8")),  # our own file
        "script": Markup((_HERE / "page.js").read_text("utf-8")),  # our own file
        "svg": lambda figure: Markup(figure.svg),  # matplotlib escapes its texts
    }


def _optional(table: Table | None) -> Markup | None:
    return None if table is None else _table(table)


def page(report: Report) -> str:
    """The whole page as text."""
    return _template().render(_context(report))


def write_page(report: Report, directory: Path) -> Path:
    """Write `report.html` into a directory; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / PAGE_FILE
    write_atomic(path, page(report))
    return path
