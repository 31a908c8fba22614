"""The self-contained HTML report.

Importing this package imports neither matplotlib nor jinja2; writing a report does.
"""

from __future__ import annotations

from pathlib import Path

from analysis.report import Report
from analysis.study import Question

PAGE_FILE = "report.html"


def write_page(report: Report, directory: Path) -> Path:
    """Write `report.html` about tables that are there already; returns its path."""
    from analysis.html import page

    return page.write_page(report, directory)


def write_report(sweep_dir: Path, question: Question | None = None) -> Path:
    """Write `report.html` of one sweep into its directory; returns its path.

    Raises:
        UserError: the directory holds no runs, or the question names an unknown key.
    """
    return write_page(Report.of([sweep_dir], question), sweep_dir)
