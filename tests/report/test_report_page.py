"""The HTML report, by its text and in a real browser."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from analysis_records import plain, record, write_sweep
from report_sweeps import MARKUP, full_grid, whole_sweep

from analysis.figures import FIGURES
from analysis.html import write_page, write_report
from analysis.html.findings import summarize
from analysis.html.page import page
from analysis.load import from_records
from analysis.report import Report
from analysis.sources import read
from analysis.study import Study
from analysis.tables import TABLES

# Put before and after the page's own: collects errors, then tries every heading of every table.
WATCH = """<script>
window.problems = [];
addEventListener("error", (e) => problems.push(String(e.message)));
addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective));
</script>"""

PROBE = """<script>
const cells = (table, column) =>
  [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value);
const found = { problems, hacked: window.hacked === true, tables: {}, figures: [], resources: [] };
for (const table of document.querySelectorAll("section.table table")) {
  const columns = {};
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const before = cells(table, column);
    header.querySelector("button").click();
    const up = [cells(table, column), header.getAttribute("aria-sort")];
    header.querySelector("button").click();
    const down = [cells(table, column), header.getAttribute("aria-sort")];
    columns[header.querySelector("button").textContent] = { before, up, down };
  });
  found.tables[table.closest("section.table").id] = columns;
}
found.figures = [...document.querySelectorAll("figure svg")].map((svg) => ({
  name: svg.closest("figure").id, width: svg.getBoundingClientRect().width,
}));
found.resources = performance.getEntriesByType("resource").map((entry) => entry.name);
found.unlabelled = [...document.querySelectorAll("[role=img]")]
  .filter((one) => !one.getAttribute("aria-label")).length;
found.anchors = [...document.querySelectorAll("a[href^='#']")]
  .filter((a) => !document.getElementById(a.getAttribute("href").slice(1)))
  .map((a) => a.getAttribute("href"));
found.overflow = document.documentElement.scrollWidth > innerWidth;
const probe = document.createElement("pre");
probe.id = "probe";
probe.textContent = JSON.stringify(found);
document.body.append(probe);
</script>"""


class Outside(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        links = [values.get(name, "") for name in ("src", "srcset", "data", "action", "poster")]
        if tag in ("link", "iframe", "object", "embed", "base", "use"):
            links += [values.get("href", ""), values.get("xlink:href", "")]
        self.found += [link for link in links if link and not link.startswith("#")]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = whole_sweep(tmp_path_factory.mktemp("sweeps") / "s")
    (directory / "broken").mkdir()
    (directory / "broken" / "record.json").write_text("{")
    write_report(directory)
    return directory


@pytest.fixture(scope="module")
def text(sweep: Path) -> str:
    return (sweep / "report.html").read_text("utf-8")


def _probe(page_text: str, directory: Path, browser: Callable[[Path], str]) -> dict[str, Any]:
    watched = page_text.replace("<head>", f"<head>{WATCH}", 1)
    watched = watched.replace("</body>", f"{PROBE}</body>", 1)
    path = directory / "watched.html"
    path.write_text(watched, "utf-8")
    match = re.search(r'<pre id="probe">(.*?)</pre>', browser(path), re.DOTALL)
    assert match, "the page's scripts did not run to their end"
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    return found


def test_the_page_holds_every_table_and_figure(sweep: Path, text: str) -> None:
    shown = {table.name for table in Report.of([sweep]).tables}
    assert shown >= {"runs", "memory", "precision", "checkpointing", "combined", "scaling"}
    for name in shown:
        assert f'id="table-{name}"' in text
    for name in FIGURES:
        assert f'id="figure-{name}"' in text
    assert shown <= set(TABLES)


def test_the_page_loads_nothing_from_elsewhere(text: str) -> None:
    outside = Outside()
    outside.feed(text)
    assert outside.found == []
    assert not re.search(r"@import|url\((?!#)", text)


def test_markup_in_configs_and_logs_is_shown_as_text(text: str) -> None:
    assert MARKUP not in text
    assert "<script>window.hacked" not in text
    assert text.count("&lt;script&gt;window.hacked = true") >= 3  # config, message, log


def test_the_summary_says_what_ran_on_what_against_what(text: str) -> None:
    summary = text[text.index('<section id="summary">') : text.index('<section id="advice">')]
    assert "10 runs, model dit_s, data set noise" in text
    assert "A100" in summary
    assert "Baseline: precision=fp32 ckpt=off accum=1 gpus=1" in summary


def test_failures_come_with_cause_and_the_end_of_the_log(text: str) -> None:
    failures = text[text.index('<section id="failures">') :]
    assert "OutOfMemoryError" in failures
    assert "last words" in failures


def test_every_run_can_be_repeated_and_what_was_left_out_is_said(text: str) -> None:
    assert "python train.py precision=amp" in text
    left_out = text[text.index('<section id="left-out">') :]
    assert "broken" in left_out


def test_findings_follow_from_the_figures() -> None:
    records = ((f"r{i}", plain(one)) for i, one in enumerate(full_grid()))
    found = [finding.text for finding in summarize(Study(from_records(records)))]
    told = "\n".join(found)
    # By hand: amp on, 2 GPUs holds 80 + 120 * 0.6 * 0.5 / 2 = 98 MiB of the baseline's 200.
    assert "Least memory: precision=amp ckpt=on gpus=2, 98.0 MiB per GPU at 1024" in told
    assert "51 % less memory per GPU and 60 % faster than its baseline" in told
    # amp: 152, 116, 116, 98 against 200, 140, 140, 110 MiB; every step takes 0.8 of the time.
    assert "precision=amp against precision=fp32, all else equal: memory 11 to 24 % less" in told
    assert "speed 25 % faster; validation loss equal" in told
    # ckpt: 140/200, 110/140, 116/152, 98/116; every step takes 1.25 times as long.
    assert "memory 16 to 30 % less; speed 20 % slower" in told
    assert "2 GPUs, strong scaling: speed-up 1.60 times, efficiency 80 %" in told
    assert "One run of each configuration" in told


def test_repeats_take_the_warning_away() -> None:
    records = ((f"r{i}", plain(one)) for i, one in enumerate(full_grid(repeats=2)))
    found = [finding.text for finding in summarize(Study(from_records(records)))]
    assert not any("One run of each" in one for one in found)


def test_a_page_without_comparable_runs_is_still_a_page(tmp_path: Path) -> None:
    one = record(status="failed", memory_mib=None, step_s=None, loss=None, error="boom")
    path = write_report(write_sweep(tmp_path / "s", [one]))
    assert "boom" in path.read_text("utf-8")


def test_the_published_measurements_make_a_page(tmp_path: Path) -> None:
    path = write_page(Report(read([], published=True)), tmp_path)
    assert "imported" in path.read_text("utf-8")


def test_importing_the_package_imports_neither_matplotlib_nor_jinja() -> None:
    code = (
        "import sys, analysis.__main__, analysis.html; "
        "print([m for m in ('matplotlib', 'jinja2', 'wandb') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_command_names_the_report(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record(), record(precision="amp")])
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "report", str(sweep)],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert str(sweep / "report.html") in done.stdout
    assert (sweep / "report.html").exists()


def test_a_browser_finds_no_error_and_every_table_and_figure(
    sweep: Path, text: str, tmp_path: Path, browser: Callable[[Path], str]
) -> None:
    found = _probe(text, tmp_path, browser)
    assert found["problems"] == []
    assert found["hacked"] is False
    assert found["resources"] == []
    tables = {table.name for table in Report.of([sweep]).tables}
    assert set(found["tables"]) == {
        f"table-{name}" for name in (*tables, "commands", "differences")
    }
    assert [one["name"] for one in found["figures"]] == [f"figure-{name}" for name in FIGURES]
    assert all(one["width"] > 300 for one in found["figures"])
    assert found["unlabelled"] == 0
    assert found["anchors"] == []
    assert found["overflow"] is False


def _numbers(values: list[str]) -> list[float]:
    return [float(value) for value in values if value != ""]


def test_a_browser_sorts_numbers_as_numbers_and_keeps_the_unknown_last(
    text: str, tmp_path: Path, browser: Callable[[Path], str]
) -> None:
    columns = _probe(text, tmp_path, browser)["tables"]["table-runs"]
    name = next(head for head in columns if head.startswith("step time"))
    before, up, down = (columns[name][key] for key in ("before", "up", "down"))
    assert _numbers(up[0]) == sorted(_numbers(before))
    assert _numbers(down[0]) == sorted(_numbers(before), reverse=True)
    # The run out of memory has no step time: it stays at the end both ways.
    assert up[0][-1] == down[0][-1] == ""
    assert (up[1], down[1]) == ("ascending", "descending")
    assert columns["gpus"]["up"][0] == sorted(columns["gpus"]["before"], key=int)
    assert columns["precision"]["up"][0] == sorted(columns["precision"]["before"])


def test_a_browser_shows_markup_in_a_value_that_varies_as_text(
    tmp_path: Path, browser: Callable[[Path], str]
) -> None:
    records = [record(note=MARKUP, memory_mib=90), record(note="plain", step_s=0.2)]
    report = Report(from_records((f"r{i}", plain(one)) for i, one in enumerate(records)))
    found = _probe(page(report), tmp_path, browser)
    assert found["hacked"] is False
    assert found["problems"] == []
    assert MARKUP in found["tables"]["table-differences"]["note"]["before"]
