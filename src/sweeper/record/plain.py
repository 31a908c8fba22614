"""Dataclasses to plain JSON values and back, checked by their type hints."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar


class RecordError(Exception):
    """A record, state or identity file that cannot be read; the message names the file and why."""


T = TypeVar("T")


def now() -> str:
    """UTC, to the microsecond, sortable as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def to_plain(value: Any) -> Any:
    """Dataclasses, enums, paths and non-finite floats as plain JSON values.

    JSON has no NaN or infinity: they become null, and the status says `diverged`.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, dict):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return value


def from_plain(cls: type[T], data: Any, where: str = "record") -> T:
    """Build the dataclass `cls` from plain JSON values; unknown keys are left out.

    Raises:
        RecordError: a value is missing or of the wrong kind.
    """
    if not isinstance(data, dict):
        raise RecordError(f"{where}: expected an object, found {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for item in fields(cls):  # type: ignore[arg-type]  # T is one of this module's dataclasses
        if item.name in data:
            values[item.name] = _value(hints[item.name], data[item.name], f"{where}.{item.name}")
    try:
        return cls(**values)
    except TypeError as error:
        raise RecordError(f"{where}: {error}") from error


def _value(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (inner,) = [a for a in typing.get_args(hint) if a is not type(None)]
        return _value(inner, value, where)
    if origin is not None:
        if not isinstance(value, origin):
            raise RecordError(f"{where}: expected a {origin.__name__}, found {value!r}")
        return value
    if hint is Any:
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return from_plain(hint, value, where)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError as error:
            raise RecordError(f"{where}: unknown value {value!r}") from error
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise RecordError(f"{where}: expected {hint.__name__}, found {value!r}")
    return value


def dump(value: Any) -> str:
    return json.dumps(to_plain(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
