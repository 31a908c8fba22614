"""The leaves of the record's schema, found by reflection: a new field needs no line here."""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from sweeper.record import Record

Kind = Literal["number", "integer", "flag", "text", "list"]

# Fields whose keys are the user's; they are flattened by name, not by schema.
OPEN = ("config", "choices")

# JSON types that each kind allows. A bool is no number.
ALLOWED: dict[Kind, frozenset[type]] = {
    "number": frozenset({float, int}),
    "integer": frozenset({int}),
    "flag": frozenset({bool}),
    "text": frozenset({str}),
    "list": frozenset({list}),
}


class Leaf(NamedTuple):
    """One value of a record and the frame column it becomes."""

    column: str
    key: str
    kind: Kind


class Section(NamedTuple):
    """One object of a record: where it lies, and its leaves."""

    path: tuple[str, ...]
    leaves: tuple[Leaf, ...]


def _inner(hint: Any) -> Any:
    """The type without `| None`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = [a for a in typing.get_args(hint) if a is not type(None)]
        return inner
    return hint


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) is list:
        return "list"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return "text"
    kinds: dict[Any, Kind] = {float: "number", int: "integer", bool: "flag", str: "text"}
    return kinds[hint]


def _walk(cls: type[Any], path: tuple[str, ...]) -> list[Section]:
    hints = typing.get_type_hints(cls)
    leaves: list[Leaf] = []
    below: list[Section] = []
    # The identity is who the run is: its columns carry no prefix.
    prefix = "".join(f"{p}." for p in path if p != "identity")
    for item in fields(cls):
        hint = _inner(hints[item.name])
        if item.name in OPEN:
            continue
        if isinstance(hint, type) and is_dataclass(hint):
            below += _walk(hint, (*path, item.name))
            continue
        leaves.append(Leaf(f"{prefix}{item.name}", item.name, _kind(hint)))
    return [Section(path, tuple(leaves)), *below]


@lru_cache(maxsize=1)
def sections() -> tuple[Section, ...]:
    """Every object of the record's schema, the record itself first."""
    return tuple(_walk(Record, ()))


@lru_cache(maxsize=1)
def kinds() -> dict[str, Kind]:
    """Frame column -> kind, for every column that the schema fixes."""
    return {leaf.column: leaf.kind for section in sections() for leaf in section.leaves}
