"""A table as text cells: what every rendering for people has in common."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import text
from analysis.quantities import Floats, Scale, choose
from analysis.table import Column, Table


@dataclass(frozen=True)
class Cells:
    """Headings, units and cells of the columns that are shown."""

    columns: tuple[Column, ...]
    units: tuple[str, ...]
    bodies: tuple[tuple[str, ...], ...]  # one tuple for each column

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*self.bodies, strict=True)) if self.bodies else []

    def headers(self) -> list[str]:
        """One line each: `step time (ms)`."""
        heads = [c.header.replace("-\n", "").replace("\n", " ") for c in self.columns]
        return [f"{h} ({u})" if u else h for h, u in zip(heads, self.units, strict=True)]


def plain(value: str) -> str:
    """Text without anything that a terminal or a page might obey; line breaks become spaces."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(
        c
        if not unicodedata.category(c).startswith("C")
        else (" " if c in "\n\t" else f"\\x{ord(c):02x}")
        for c in value
    )


def _raw(frame: pd.DataFrame, name: str | None) -> Floats:
    if name is None or name not in frame.columns:
        return np.full(len(frame), np.nan)
    return pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)


def _scales(table: Table) -> dict[str, Scale]:
    """Column -> scale. Of columns of one scale the first decides."""
    grouped: dict[str, list[Column]] = {}
    for column in table.columns:
        if column.kind != "text":
            grouped.setdefault(column.scale or column.name, []).append(column)
    scales = {}
    for columns in grouped.values():
        scale = choose(columns[0].kind, _raw(table.frame, columns[0].name))
        if columns[0].decimals is not None:
            scale = replace(scale, decimals=columns[0].decimals)
        scales.update({c.name: scale for c in columns})
    return scales


def _numbers(table: Table, column: Column, scale: Scale) -> list[str]:
    frame = table.frame
    low, high = _raw(frame, column.name), _raw(frame, column.upper)
    spread = _raw(frame, column.deviation)
    missing = "" if column.upper else column.missing
    body = []
    for value, upper, deviation in zip(low.tolist(), high.tolist(), spread.tolist(), strict=True):
        if deviation == deviation:
            body.append(f"± {scale.text(deviation)}")
        elif value != value:
            body.append(missing)
        elif upper == upper:
            body.append(f"{scale.text(value)}–{scale.text(upper)}")
        else:
            body.append(scale.text(value))
    return body


def _texts(values: npt.NDArray[np.object_], missing: str) -> list[str]:
    shown = {v: missing if pd.isna(v) else plain(text(v)) for v in pd.unique(values)}
    return [shown[v] if v == v else missing for v in values]


def cells(table: Table) -> Cells:
    """Format every column of the table."""
    scales = _scales(table)
    bodies = []
    for column in table.columns:
        if column.kind == "text":
            values = table.frame[column.shown or column.name].to_numpy(dtype=object)
            bodies.append(tuple(_texts(values, column.missing)))
            continue
        body = _numbers(table, column, scales[column.name])
        if column.shown:
            stand_in = table.frame[column.shown].to_numpy(dtype=object)
            body = [b if pd.isna(s) else plain(str(s)) for b, s in zip(body, stand_in, strict=True)]
        bodies.append(tuple(body))
    units = tuple(scales[c.name].unit if c.kind != "text" else "" for c in table.columns)
    return Cells(table.columns, units, tuple(bodies))
