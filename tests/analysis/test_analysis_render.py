"""One table in five formats: same cells, right escapes, raw figures in the CSV."""

from __future__ import annotations

import html.parser
import io
import json

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from analysis import render
from analysis.cells import cells
from analysis.table import Column, Table

HOSTILE = "<script>alert(1)</script>|a&b%c_d$e#f{g}~h^i\\j*k`l[m](n)\"o'p"


def small(**data: object) -> Table:
    frame = pd.DataFrame({"name": [HOSTILE, "b"], **data})
    return Table(
        name="t",
        title="A <b>title</b> & 50 %",
        frame=frame,
        columns=(
            Column("name", "name"),
            Column("peak_bytes", "peak\nmemory", "bytes"),
            Column("change_percent", "memory\nvs base", "change", shown="words"),
        ),
        facts=("fact <i>",),
        notes=("note | 1",),
    )


@pytest.fixture
def table() -> Table:
    return small(
        peak_bytes=[30634800640.0, float("nan")],
        change_percent=[-19.671, float("nan")],
        words=[None, "n/a"],
    )


def test_one_unit_for_the_column_and_it_stands_in_the_header(table: Table) -> None:
    found = cells(table)
    assert found.headers() == ["name", "peak memory (GiB)", "memory vs base (%)"]
    assert found.bodies[1] == ("28.53", "–")
    assert found.bodies[2] == ("-19.7", "n/a")


@pytest.mark.parametrize(
    ("values", "expected", "unit"),
    [
        ([30634800640.0, 24607903232.0], ("28.53", "22.92"), "GiB"),
        ([41.80e9], ("38.93",), "GiB"),
        ([5.5 * 2**20, 412.3 * 2**20], ("5.5", "412.3"), "MiB"),
        ([1024.0, 2048.0], ("1.00", "2.00"), "KiB"),
    ],
)
def test_bytes_are_binary_units(values: list[float], expected: tuple[str, ...], unit: str) -> None:
    table = Table("t", "t", pd.DataFrame({"x_bytes": values}), (Column("x_bytes", "x", "bytes"),))
    assert cells(table).bodies[0] == expected
    assert cells(table).units == (unit,)


def test_csv_holds_raw_figures_and_empty_fields(table: Table) -> None:
    read = pd.read_csv(io.StringIO(render.csv(table)))
    assert read["peak_bytes"].iloc[0] == 30634800640
    assert render.csv(table).splitlines()[2] == "b,,"
    assert read["name"].iloc[0] == HOSTILE
    assert "30634800640," in render.csv(table)
    assert read["change_percent"].iloc[0] == -19.671


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_shows_config_values_as_text(table: Table) -> None:
    page = _Page()
    page.feed(render.html_fragment(table))
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert HOSTILE in page.text
    assert 'data-value="30634800640.0"' in render.html_fragment(table)


def test_markdown_has_one_cell_per_column_and_keeps_the_text(table: Table) -> None:
    text = render.markdown(table)
    page = _Page()
    page.feed(MarkdownIt("gfm-like", {"linkify": False}).render(text))
    assert page.tags.count("td") == 6
    assert "script" not in page.tags
    assert HOSTILE in "".join(page.text)


def test_latex_escapes_every_special_character(table: Table) -> None:
    text = render.latex(table)
    assert r"<" not in text
    assert r"a\&b\%c\_d\$e\#f\{g\}\textasciitilde{}h\textasciicircum{}i\textbackslash{}j" in text
    assert text.count(r"\\") == 3  # the heading and two rows


def test_a_terminal_obeys_nothing_in_a_value() -> None:
    table = small(peak_bytes=[1.0, 2.0], change_percent=[0.0, 0.0], words=[None, None])
    table.frame.loc[0, "name"] = "[red]x\x1b[31my\nz"
    text = render.terminal(table, width=100)
    assert "\x1b" not in text
    assert "[red]x" in text


def test_where_width_is_short_columns_leave_by_their_number_and_are_named() -> None:
    frame = pd.DataFrame({"a": ["x"], "b_s": [0.25], "c_s": [0.5]})
    columns = (
        Column("a", "first"),
        Column("b_s", "second", "seconds", drop=2),
        Column("c_s", "third", "seconds", drop=1),
    )
    table = Table("t", "t", frame, columns)
    wide, narrow = render.terminal(table, width=60), render.terminal(table, width=14)
    assert "second" in wide
    assert "not shown" not in wide
    head = narrow.split("not shown")[0]
    assert "second" not in head
    assert "third" in head
    assert "second (ms)" in narrow.replace("\n", " ")


def test_ranges_deviations_and_zeros() -> None:
    frame = pd.DataFrame(
        {
            "q1_s": [0.1, 0.1, None],
            "q3_s": [0.2, 0.2, None],
            "sd_s": [None, 0.01, None],
            "x_percent": [-0.0001, 0.0, 12.34],
        }
    )
    spread = Column("q1_s", "spread", "seconds", upper="q3_s", deviation="sd_s")
    table = Table("t", "t", frame, (spread, Column("x_percent", "x", "change")))
    assert cells(table).bodies == (("100–200", "± 10", ""), ("0.0", "0.0", "+12.3"))


def test_wide_characters_do_not_break_the_columns() -> None:
    frame = pd.DataFrame({"name": ["实验一", "b"], "n": [1.0, 2.0]})
    text = render.markdown(
        Table("t", "t", frame, (Column("name", "name"), Column("n", "n", "count")))
    )
    assert "| 实验一 |   1 |" in text
    assert "| b      |   2 |" in text


def test_many_rows_are_cut_in_the_terminal_and_counted() -> None:
    frame = pd.DataFrame({"n": range(100)})
    text = render.terminal(Table("t", "t", frame, (Column("n", "n", "count"),)), width=60, rows=10)
    assert "90 more rows: see t.md or t.csv" in text
    assert json.loads("[" + ",".join(text.split("─")[-1].split()[:10]) + "]") == list(range(10))
