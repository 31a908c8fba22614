"""Nested values as flat, hashable ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

Scalar = str | int | float | bool | None

_SCALARS = frozenset({str, int, float, bool, type(None)})
_WHOLE = _SCALARS - {float}
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
).encode


def _canonical(value: Any) -> Any:
    """1.0 as 1: the same list must become the same text, whoever wrote it."""
    if isinstance(value, list):
        if _WHOLE.issuperset(map(type, value)):
            return value
        return [_canonical(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def scalar(value: Any) -> Scalar:
    """A hashable stand-in: scalars as they are, lists and objects as compact JSON text."""
    if type(value) in _SCALARS:
        return value  # type: ignore[no-any-return]  # its type was just looked at
    return _encode(_canonical(value)) if value else str(value)  # [] and {} are the most frequent


def flatten(tree: Mapping[str, Any], prefix: str) -> dict[str, Scalar]:
    """`{"a": {"b": 1}, "c.d": [2]}` as `{prefix + "a.b": 1, prefix + "c.d": "[2]"}`.

    A key with a dot in it and the nested key of the same name are one column; the nested one wins.
    """
    flat: dict[str, Scalar] = {}
    dotted: dict[str, Scalar] = {}
    _flatten(tree, prefix, flat, dotted)
    for key, value in dotted.items():
        flat.setdefault(key, value)
    return flat


def _flatten(
    tree: Mapping[str, Any], prefix: str, flat: dict[str, Scalar], dotted: dict[str, Scalar]
) -> None:
    values = tree.values()
    names, plain = _names(prefix, tuple(tree))
    if plain and _SCALARS.issuperset(map(type, values)):
        flat.update(zip(names, values, strict=True))
        return
    for key, name, value in zip(tree, names, values, strict=True):
        if type(value) is dict:  # an empty one says nothing
            _flatten(value, name + ".", flat, dotted)
        elif "." in key:
            dotted[name] = scalar(value)
        else:
            flat[name] = scalar(value)


@lru_cache(maxsize=1024)
def _names(prefix: str, keys: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The columns of an object's keys, and whether no key has a dot in it."""
    return tuple(prefix + key for key in keys), not any("." in key for key in keys)
