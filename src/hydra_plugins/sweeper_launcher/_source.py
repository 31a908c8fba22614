"""Giving functions that were pickled by value their file name back, so that tracebacks show lines.

A program's own functions (those of `__main__`) travel by value, and the pickle leaves out where
their source is.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

_LOST = "<dynamic-code>"  # what cloudpickle puts in place of every file name


def restore(function: Any, main_file: str | None) -> None:
    """Name the source of a function, and of the functions and classes beside it.

    Args:
        function: as it was loaded; anything but a plain function is left alone.
        main_file: of the program that pickled it.
    """
    if not isinstance(function, FunctionType):
        return
    beside = [value for value in function.__globals__.values() if _is_lost(value)]
    methods = [
        method
        for kind in beside
        if isinstance(kind, type)
        for method in vars(kind).values()
        if isinstance(method, FunctionType)
    ]
    for found in (function, *beside, *methods):
        if isinstance(found, FunctionType):
            source = main_file
            if found.__module__ != "__main__":
                source = getattr(sys.modules.get(found.__module__), "__file__", None)
            if source is not None:
                found.__code__ = _named(found.__code__, source)


def _is_lost(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return value.__code__.co_filename == _LOST
    return isinstance(value, type) and value.__module__ == "__main__"


def _named(code: CodeType, source: str) -> CodeType:
    """The code and those nested in it (lambdas, inner functions), with the file's name."""
    if code.co_filename != _LOST:
        return code
    inner = tuple(
        _named(part, source) if isinstance(part, CodeType) else part for part in code.co_consts
    )
    return code.replace(co_filename=source, co_consts=inner)
