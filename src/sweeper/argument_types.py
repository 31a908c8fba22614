"""Whether a value of the config fits the type that its target declares for it."""

from __future__ import annotations

import inspect
import math
import types
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

ON_OFF = {"on": True, "off": False, "yes": True, "no": False, "true": True, "false": False}

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@lru_cache(maxsize=256)
def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception:  # a user's annotations may not resolve; then nothing is known
        return {}


def hints_of(target: Any) -> dict[str, Any]:
    """The declared types of a class's or function's arguments; empty where they are not known."""
    function = target.__init__ if inspect.isclass(target) else target
    try:
        return _hints(function)
    except TypeError:  # not hashable
        return {}


def wrong_type(value: Any, hint: Any, default: Any) -> str | None:
    """What the value should have been, in words, or None where it fits or that cannot be told.

    Args:
        value: from the config: a plain value, list or mapping.
        hint: the declared type; only bool, int, float, str and their unions are judged.
        default: of the argument; None is then a value, whatever is declared.
    """
    union = get_origin(hint) in (Union, types.UnionType)
    members = set(get_args(hint)) if union else {hint}
    if value is None:
        fits = default is None or type(None) in members
    else:
        fits = any(_fits(value, member) for member in members)
    # No value of a config is a tensor; whatever else is declared may take what we do not know of.
    members -= {type(None), *(m for m in members if str(m).startswith("<class 'torch."))}
    if fits or not members or not members <= _NAMES.keys():
        return None
    return " or ".join(name for kind, name in _NAMES.items() if kind in members)


def _fits(value: Any, kind: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool) or (isinstance(value, str) and value.lower() in ON_OFF)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and not math.isnan(value)
    # A number typed where text is wanted is text, e.g. a project called 2024.
    return kind is str and isinstance(value, str | int | float)
