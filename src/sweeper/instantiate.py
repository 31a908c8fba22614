"""Building objects from `_target_` nodes: the one module that calls `hydra.utils.instantiate`.

The arguments of a node are checked against the target's signature before anything is built, and an
import error inside the user's package is reported by its root cause.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException

from sweeper.argument_types import ON_OFF, hints_of, wrong_type
from sweeper.errors import UserError, nearest

# Keys of a node that are not arguments of its target.
RESERVED = ("_target_", "_partial_", "_args_", "_recursive_", "_convert_", "objective")


@contextlib.contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Hydra logs the import error that we report."""
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def root_cause(error: BaseException) -> BaseException:
    """The exception at the end of the chain of causes."""
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None:
            return error
        error = inner


def locate(node: Mapping[str, Any], key: str) -> Any:
    """Import the node's target.

    Raises:
        UserError: there is no `_target_`, or it cannot be imported; names the root cause.
    """
    target = node.get("_target_")
    if not isinstance(target, str):
        raise UserError(
            f"{key}._target_",
            "is missing",
            f"set {key}._target_ to the path of a class or function",
        )
    try:
        with _quiet(logging.getLogger(hydra.utils.__name__)):
            return hydra.utils.get_object(target)
    except Exception as error:
        cause = root_cause(error)
        raise UserError(
            f"{key}._target_",
            f"{target} cannot be imported: {type(cause).__name__}: {cause}",
            "check the path, and that its package can be imported from the current directory",
        ) from error


def arguments(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in RESERVED}


def check_target(node: Mapping[str, Any], key: str, given: tuple[str, ...] = ()) -> None:
    """Check the node's arguments against its target's signature.

    Args:
        node: the config node.
        key: its full key, for the message.
        given: names of arguments that the program supplies itself.

    Raises:
        UserError: unknown, missing or doubly given argument, or a plain value of the wrong type.
    """
    target = locate(node, key)
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # some builtins have no signature; the call itself will tell
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {
        name: p
        for name, p in parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    passed = arguments(node)
    for name in passed:
        if name in given:
            raise UserError(f"{key}.{name}", "is set by the program itself", "remove it")
        if name not in named and not open_ended:
            near = nearest(name, [n for n in named if n not in given])
            hint = f"did you mean {key}.{near}?" if near else f"remove {key}.{name}"
            raise UserError(f"{key}.{name}", f"{node['_target_']} has no such argument", hint)
    hints = hints_of(target)
    for name, value in passed.items():
        default = named[name].default if name in named else None
        wanted = wrong_type(value, hints.get(name), default) if name in hints else None
        if wanted is not None:
            raise UserError(f"{key}.{name}", f"{value!r} is not {wanted}", f"set {key}.{name}=...")
    # Arguments given positionally by the program fill the first parameters.
    for name, parameter in named.items():
        missing = parameter.default is parameter.empty and name not in passed and name not in given
        if missing and not node.get("_partial_"):
            raise UserError(
                f"{key}.{name}", f"{node['_target_']} needs it", f"set {key}.{name}=..."
            )


def _on_off(target: Any, values: dict[str, Any]) -> dict[str, Any]:
    """`on` and `off` mean true and false wherever the target declares a bool."""
    hints = hints_of(target)
    return {
        name: ON_OFF.get(value.lower(), value)
        if hints.get(name) is bool and isinstance(value, str)
        else value
        for name, value in values.items()
    }


def build(node: Mapping[str, Any], key: str, *args: Any, **extra: Any) -> Any:
    """Call the node's target with its arguments, `args` first, and `extra` beside them.

    Raises:
        UserError: the target cannot be imported or refuses its arguments.
        Exception: what the target itself raises while it runs, unchanged.
    """
    target = locate(node, key)
    values = _on_off(target, arguments(node))
    config = {"_target_": node["_target_"], "_convert_": "all", **values}
    for name in ("_recursive_", "_partial_"):
        if name in node:
            config[name] = node[name]
    try:
        return hydra.utils.instantiate(config, *args, **extra)
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        cause = root_cause(error)
        if isinstance(cause, TypeError):
            raise UserError(
                key, f"{node['_target_']} refused its arguments: {cause}", f"correct {key}"
            ) from error
        if isinstance(cause, MemoryError | RuntimeError | ValueError | OSError):
            raise cause from None
        raise
