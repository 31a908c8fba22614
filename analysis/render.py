"""The one renderer: a table as terminal text, Markdown, CSV, LaTeX or HTML.

The CSV holds raw figures in base units (B, s, ratios) with full precision, for programs; all others
hold the same rounded cells, for people, escaped for their format.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.cells import Cells, cells, plain
from analysis.table import Column, Table

# Columns that a text takes in the terminal, at most and at least; longer ones are folded.
WIDEST, NARROWEST = 40, 10

_MARKDOWN = re.compile(r"([\\`*\[\]<>|~&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z]))")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"$\pm$",
    "µ": r"\textmu{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def _natural(column: Column, unit: str, body: tuple[str, ...]) -> tuple[int, int]:
    """The width that a column likes to have, and the least that it can do with."""
    head = max(cell_len(line) for line in (*column.header.split("\n"), unit))
    longest = max(head, max((cell_len(cell) for cell in body), default=0))
    return (min(longest, WIDEST), min(longest, NARROWEST)) if column.left else (longest, longest)


def _shrunk(natural: dict[int, tuple[int, int]], room: int) -> dict[int, int] | None:
    """Widths that fit into `room`: the widest texts give way first; None where none do."""
    sizes = {i: size for i, (size, _) in natural.items()}
    while sum(sizes.values()) > room:
        soft = [i for i in sizes if sizes[i] > natural[i][1]]
        if not soft:
            return None
        sizes[max(soft, key=lambda i: sizes[i])] -= 1
    return sizes


def _fitting(found: Cells, width: int) -> tuple[dict[int, int], int]:
    """The columns that fit with their widths, and the gap between them.

    Where width is short, the gap narrows first; then long texts are folded into several lines;
    then columns leave, the highest `drop` first.
    """
    triples = zip(found.columns, found.units, found.bodies, strict=True)
    natural = {i: _natural(*triple) for i, triple in enumerate(triples)}
    if sum(size for size, _ in natural.values()) + 2 * (len(natural) - 1) <= width:
        return {i: size for i, (size, _) in natural.items()}, 2
    while True:
        sizes = _shrunk(natural, width - (len(natural) - 1))
        candidates = [i for i in natural if found.columns[i].drop]
        if sizes is not None or not candidates:
            return sizes or {i: least for i, (_, least) in natural.items()}, 1
        del natural[max(candidates, key=lambda i: (found.columns[i].drop, i))]


def terminal(table: Table, *, width: int | None = None, rows: int = 60, color: bool = False) -> str:
    """Text for a terminal of `width` columns (None: the present one), `rows` rows at most."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=color, highlight=False, emoji=False
    )
    found = cells(table)
    sizes, gap = _fitting(found, console.width)
    # The box adds a space of its own between columns.
    grid = RichTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0), show_edge=False
    )
    lines = max((found.columns[i].header.count("\n") for i in sizes), default=0)
    for i, size in sizes.items():
        column = found.columns[i]
        head = "\n" * (lines - column.header.count("\n")) + column.header
        justify: Any = "left" if column.left else "right"
        grid.add_column(
            Text(f"{head}\n{found.units[i]}"),
            justify=justify,
            overflow="fold",
            no_wrap=not column.left,
            width=size,
        )
    body = found.rows
    for row in body[:rows]:
        grid.add_row(*(Text(row[i]) for i in sizes))
    console.print(Text(table.title, style="bold"))
    for fact in table.facts:
        console.print(Text(plain(fact)))
    console.print()
    console.print(grid)
    below = [*table.notes]
    if len(body) > rows:
        below.append(f"{len(body) - rows:,} more rows: see {table.name}.md or {table.name}.csv")
    if len(sizes) < len(found.columns):
        names = [h for i, h in enumerate(found.headers()) if i not in sizes]
        below.append(f"not shown for lack of width: {', '.join(names)}")
    if below:
        console.print()
    for note in below:
        console.print(Text(plain(note)))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO made above
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _markdown_text(value: str) -> str:
    return _MARKDOWN.sub(r"\\\1", plain(value))


def markdown(table: Table) -> str:
    """A GitHub-flavoured table, padded so that it also reads well as it is."""
    found = cells(table)
    columns = []
    for column, header, body in zip(found.columns, found.headers(), found.bodies, strict=True):
        cooked = [_markdown_text(header), *(_markdown_text(cell) for cell in body)]
        size = max(3, *(cell_len(cell) for cell in cooked))
        rule = "-" * size if column.left else "-" * (size - 1) + ":"
        padded = [
            cell + " " * (size - cell_len(cell))
            if column.left
            else " " * (size - cell_len(cell)) + cell
            for cell in cooked
        ]
        columns.append([padded[0], rule, *padded[1:]])
    lines = ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]
    parts = [f"## {_markdown_text(table.title)}"]
    parts += ["\n".join(f"- {_markdown_text(f)}" for f in table.facts)] if table.facts else []
    parts += ["\n".join(lines)]
    parts += ["\n".join(f"- {_markdown_text(n)}" for n in table.notes)] if table.notes else []
    return "\n\n".join(parts) + "\n"


def csv(table: Table) -> str:
    """Raw figures in base units; empty where nothing was measured."""
    names: dict[str, None] = {}
    for column in table.columns:
        for name in (column.name, column.upper, column.deviation):
            if name is not None:
                names[name] = None
    frame = table.frame[list(names)]
    whole = [c.name for c in table.columns if c.kind in ("count", "bytes")]
    for name in whole:
        values = pd.to_numeric(frame[name], errors="coerce")
        if (values.dropna() % 1 == 0).all():
            frame = frame.assign(**{name: values.astype("Int64")})
    frame = frame.rename(columns=lambda name: name.removeprefix("axis."))
    return frame.to_csv(index=False, lineterminator="\n")


def _latex_text(value: str) -> str:
    return "".join(_LATEX.get(c, c) for c in plain(value))


def latex(table: Table) -> str:
    """A `table` environment; needs the booktabs package."""
    found = cells(table)
    layout = "".join("l" if column.left else "r" for column in found.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text(table.title)}}}",
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        " & ".join(_latex_text(h) for h in found.headers()) + r" \\",
        r"\midrule",
        *(" & ".join(_latex_text(cell) for cell in row) + r" \\" for row in found.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {_latex_text(line)}" for line in (*table.facts, *table.notes)),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def html_fragment(table: Table) -> str:
    """A `section` element without styles; each figure's raw value is in `data-value`."""
    found = cells(table)
    escape = html.escape
    sides = ["left" if column.left else "right" for column in found.columns]
    raw = [table.frame[column.name].tolist() for column in found.columns]
    lines = [
        f'<section class="table" id="{escape(table.name)}">',
        f"<h2>{escape(table.title)}</h2>",
    ]
    lines += [
        f'<ul class="facts">{"".join(f"<li>{escape(plain(f))}</li>" for f in table.facts)}</ul>'
    ]
    heads = zip(sides, found.headers(), strict=True)
    lines += ["<table>", "<thead><tr>"]
    lines += [f'<th class="{side}" scope="col">{escape(head)}</th>' for side, head in heads]
    lines += ["</tr></thead>", "<tbody>"]
    for number, row in enumerate(found.rows):
        tds = []
        for side, cell, values in zip(sides, row, raw, strict=True):
            value = values[number]
            known = "" if value is None or value != value else escape(plain(str(value)))
            tds.append(f'<td class="{side}" data-value="{known}">{escape(cell)}</td>')
        lines.append(f"<tr>{''.join(tds)}</tr>")
    lines += ["</tbody>", "</table>"]
    lines += [
        f'<ul class="notes">{"".join(f"<li>{escape(plain(n))}</li>" for n in table.notes)}</ul>'
    ]
    lines += ["</section>"]
    return "\n".join(lines) + "\n"


# Format -> (ending of its files, renderer).
FORMATS: dict[str, tuple[str, Callable[[Table], str]]] = {
    "terminal": ("txt", terminal),
    "markdown": ("md", markdown),
    "csv": ("csv", csv),
    "latex": ("tex", latex),
    "html": ("html", html_fragment),
}
