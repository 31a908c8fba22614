"""Records as columns of equal length, chunk by chunk, so that several processes can share the work.

Checking and encoding run a column at a time, in C where Python lets them: a record
costs about 0.1 ms, of which reading its JSON is the most.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.flatten import Scalar, flatten, scalar
from analysis.schema import ALLOWED, Kind, Leaf, sections
from sweeper.record import SCHEMA_VERSION, RecordError, Status

STATUSES = frozenset(str(status) for status in Status)
_EXPECTED: dict[Kind, str] = {
    "number": "a number",
    "integer": "an integer",
    "flag": "true or false",
    "text": "a known text",
    "list": "a list",
}
_NEEDED = frozenset({"sweep", "run_id", "config_id"})


class Problem(NamedTuple):
    """Something that was left out of the analysis, or is only partly in it."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass
class Coded:
    """A column of few distinct values: `values[codes[i]]`, or None where the code is -1."""

    values: list[Scalar]
    codes: npt.NDArray[np.int32]


Encoded = Coded | npt.NDArray[np.float64]


@dataclass
class Chunk:
    """Some records as columns."""

    length: int
    columns: dict[str, Encoded]
    problems: list[Problem] = field(default_factory=list)


def distinct_key(values: Sequence[Any]) -> Callable[[Any], Any] | None:
    """True equals 1 in Python; where a column holds both, they are told apart by type."""
    found = set(map(type, values))
    if bool in found and (int in found or float in found):
        return lambda value: (isinstance(value, bool), value)
    return None


def _is_odd(value: Scalar) -> bool:
    """Whether a value cannot be compared, grouped or written as it is.

    Numbers that are infinite, undefined or too large for a float, and text with half a character,
    which JSON can hold and a file cannot.
    """
    if isinstance(value, str):
        return not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and value.bit_length() >= sys.float_info.max_exp


def _clean(values: Sequence[Scalar]) -> Sequence[Scalar]:
    """Odd values as text that can be."""
    if not any(map(_is_odd, set(values))):
        return values
    return [_plain(v) if _is_odd(v) else v for v in values]


def _plain(value: Scalar) -> str:
    # Python refuses to write integers of more than 4300 digits in decimal.
    shown = hex(value) if isinstance(value, int) else str(value)
    return shown.encode("utf-8", "replace").decode()


def encode(values: Sequence[Scalar]) -> Coded:
    """Number the distinct values in the order they come."""
    key = distinct_key(values)
    keys = values if key is None else [None if v is None else key(v) for v in values]
    found: dict[Any, None] = dict.fromkeys(keys)
    found.pop(None, None)
    index: dict[Any, int] = {k: i for i, k in enumerate(found)}
    index[None] = -1
    codes = np.fromiter(map(index.__getitem__, keys), np.int32, len(keys))
    return Coded(list(found) if key is None else [k[1] for k in found], codes)


def _get_all(keys: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """The values of `keys`; None for each that is absent."""
    if len(keys) == 1:
        return lambda section: (section.get(keys[0]),)
    quick = itemgetter(*keys)

    def get(section: dict[str, Any]) -> tuple[Any, ...]:
        try:
            return quick(section)  # type: ignore[no-any-return]  # a tuple, for two keys or more
        except KeyError:
            return tuple(section.get(key) for key in keys)

    return get


def _unusable(leaf: Leaf, column: Sequence[Any]) -> list[int]:
    """Where a column holds what its leaf does not allow."""
    allowed = ALLOWED[leaf.kind] | {type(None)}
    if not set(map(type, column)) <= allowed:
        return [i for i, v in enumerate(column) if type(v) not in allowed]
    if leaf.column == "status" and not set(column) <= STATUSES:
        return [i for i, v in enumerate(column) if v not in STATUSES]
    if leaf.column in _NEEDED and None in column:
        return [i for i, v in enumerate(column) if v is None]
    return []


class ChunkBuilder:
    """Collects records given as plain JSON values."""

    def __init__(self) -> None:
        self._sections = sections()
        self._getters = [_get_all(tuple(leaf.key for leaf in s.leaves)) for s in self._sections]
        self._rows: list[list[tuple[Any, ...]]] = [[] for _ in self._sections]
        self._open: list[dict[str, Scalar]] = []
        self._where: list[str] = []
        self.problems: list[Problem] = []

    def add(self, where: str, data: Any) -> None:
        """Take one record; one that cannot be used becomes a problem."""
        try:
            self._take(where, data)
        except RecordError as error:
            message = str(error).removeprefix(f"{where}.").removeprefix(f"{where}: ")
            self.problems.append(Problem(where, message))
        except RecursionError:
            self.problems.append(Problem(where, "config: nested too deeply"))

    def _take(self, where: str, data: Any) -> None:
        version = data.get("schema_version") if isinstance(data, dict) else None
        if not isinstance(version, int):
            raise RecordError("not a record (it has no schema_version)")
        if version > SCHEMA_VERSION:
            raise RecordError(
                f"schema {version} is newer than this program's {SCHEMA_VERSION}; upgrade sweeper"
            )
        rows = []
        for section, get in zip(self._sections, self._getters, strict=True):
            found: Any = data
            for key in section.path:
                found = found.get(key) if found is not None else None
                if found is None:
                    found = {}
                elif not isinstance(found, dict):
                    raise RecordError(f"{'.'.join(section.path)}: expected an object")
            rows.append(get(found))
        # The walk above has made sure that the identity is an object, or absent.
        config, choices = data.get("config"), (data.get("identity") or {}).get("choices")
        for name, tree in (("config", config), ("identity.choices", choices)):
            if tree is not None and not isinstance(tree, dict):
                raise RecordError(f"{name}: expected an object")
        flat = flatten(config or {}, "config.")
        flat.update(flatten(choices or {}, "choices."))
        if any(map(_is_odd, flat)):
            flat = {_plain(key) if _is_odd(key) else key: value for key, value in flat.items()}
        for kept, row in zip(self._rows, rows, strict=True):
            kept.append(row)
        self._open.append(flat)
        self._where.append(where)

    def finish(self) -> Chunk:
        """Check and encode what was taken."""
        bad = self._refused()
        good = [i for i in range(len(self._where)) if i not in bad]
        columns: dict[str, Encoded] = {"where": encode([self._where[i] for i in good])}
        for section, rows in zip(self._sections, self._rows, strict=True):
            values = (
                zip(*(rows[i] for i in good), strict=True) if good else [()] * len(section.leaves)
            )
            for leaf, column in zip(section.leaves, values, strict=True):
                columns[leaf.column] = self._encoded(leaf, column, good)
        columns.update(self._open_columns(good))
        return Chunk(len(good), columns, self.problems)

    def _refused(self) -> set[int]:
        """Records with a value of the wrong kind, each reported with its first such value."""
        refused: set[int] = set()
        for section, rows in zip(self._sections, self._rows, strict=True):
            for leaf, column in zip(section.leaves, zip(*rows, strict=True), strict=False):
                for i in _unusable(leaf, column):
                    if i not in refused:
                        refused.add(i)
                        message = (
                            f"{leaf.column}: expected {_EXPECTED[leaf.kind]}, found {column[i]!r}"
                        )
                        self.problems.append(Problem(self._where[i], message))
        return refused

    def _encoded(self, leaf: Leaf, column: Sequence[Any], good: list[int]) -> Encoded:
        if leaf.kind in ("number", "integer"):
            return self._numbers(leaf, column, good)
        if leaf.kind == "list":
            return encode(_clean([_list_text(v) for v in column]))
        return encode(_clean(column))

    def _numbers(
        self, leaf: Leaf, column: Sequence[Any], good: list[int]
    ) -> npt.NDArray[np.float64]:
        """Absent is NaN. A number that is not finite counts as not measured, and is reported."""
        try:
            array = np.array(column, dtype=np.float64)
        except OverflowError:  # an integer of hundreds of digits
            array = np.array([_to_float(v) for v in column], dtype=np.float64)
        finite = np.isfinite(array)
        if int(finite.sum()) + column.count(None) < len(column):
            for i in np.flatnonzero(~finite).tolist():
                if column[i] is not None:
                    message = f"{leaf.column} is not finite ({column[i]}); taken as not measured"
                    self.problems.append(Problem(self._where[good[i]], message))
            array[~finite] = np.nan
        return array

    def _open_columns(self, good: list[int]) -> dict[str, Encoded]:
        """Config and choices: records with the same keys are handled together."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for row, i in enumerate(good):
            groups.setdefault(tuple(self._open[i]), []).append(row)
        columns: dict[str, list[Scalar]] = {}
        for keys, rows in groups.items():
            values = zip(*(self._open[good[r]].values() for r in rows), strict=True)
            for key, column in zip(keys, values, strict=False):
                if len(groups) == 1:
                    columns[key] = list(column)
                    continue
                full = columns.setdefault(key, [None] * len(good))
                for row, value in zip(rows, column, strict=True):
                    full[row] = value
        return {key: encode(_clean(column)) for key, column in columns.items()}


def _list_text(value: Any) -> Scalar:
    try:
        return scalar(value)
    except RecursionError:
        return "nested too deeply"


def _to_float(value: Any) -> float:
    with contextlib.suppress(OverflowError):
        return float("nan") if value is None else float(value)
    return float("inf")
