"""The command line, before Hydra sees it.

Hydra refuses bare integers and booleans as options of a config group (`gpus=4`, `ckpt=true`),
silently keeps the last of a key that is given twice, and answers some overrides with an internal
error or not at all. All this is put right here, with Hydra's own override parser.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    Glob,
    Override,
    OverrideType,
    QuotedString,
    Transformer,
)
from hydra.errors import HydraException

from sweeper.errors import UserError
from sweeper.refusals import GROUPS, ONCE, is_below, refuse

COUNT_GROUPS = ("gpus", "accum")  # options are whole numbers
SWITCH_GROUPS = ("ckpt",)  # options are on and off


def parse(arguments: Sequence[str]) -> list[Override]:
    """Parse overrides one by one, so that the message can name the bad one."""
    parser = OverridesParser.create()
    parsed = []
    for argument in arguments:
        try:
            parsed.append(parser.parse_override(argument))
        except HydraException as error:
            reason = str(error).splitlines()[0]
            key, equals, value = argument.partition("=")
            remedy = "write it as key=value, without spaces around the ="
            if equals:
                remedy = f"""quote the value, for Hydra and for the shell: "{key}='{value}'" """
            raise UserError(
                argument, f"cannot be read as key=value ({reason})", remedy.rstrip()
            ) from error
    return parsed


def _refuse_twice(overrides: Sequence[Override]) -> None:
    seen: dict[str, str] = {}
    for override in overrides:
        if override.type is OverrideType.DEL:
            continue
        key = override.get_key_element().lstrip("+~")
        line = str(override.input_line)
        if key in seen:
            remedy = "keep one of them"
            if not key.startswith("hydra") and not is_below(key, ONCE):
                remedy += f", or sweep over both values with {key}=A,B"
            raise UserError(key, f"is given twice: {seen[key]} and {line}", remedy)
        seen[key] = line


def _values(override: Override) -> list[object]:
    if override.is_sweep_override() and override.is_discrete_sweep():
        if isinstance(override.value(), Glob):
            return [override.get_value_string()]  # the options are known to Hydra alone
        return list(override.sweep_iterator(transformer=Transformer.identity))
    if override.is_sweep_override():  # an interval
        return [override.get_value_string()]
    return [override.value()]


def _plain(value: object) -> object:
    return value.text if isinstance(value, QuotedString) else value


def _count_option(group: str, value: object) -> str:
    text = str(_plain(value))
    if not text.isdecimal() or int(text) < 1:
        raise UserError(
            group, f"{text} is not a whole number of at least 1", f"for example {group}=1,4,8"
        )
    return str(int(text))


def _switch_option(value: object) -> str:
    plain = _plain(value)
    if isinstance(plain, bool):
        return "on" if plain else "off"
    return str(plain)


def _quote(override: Override) -> str:
    group = override.key_or_group
    line = str(override.input_line)
    if override.type is OverrideType.DEL or isinstance(override.value(), Glob):
        if group in COUNT_GROUPS and override.type is not OverrideType.DEL:
            _count_option(group, override.get_value_string())  # has no list of numbers to match
        return line
    if override.package is not None:
        return line
    if group in COUNT_GROUPS:
        options = [_count_option(group, value) for value in _values(override)]
    elif group in SWITCH_GROUPS:
        options = [_switch_option(value) for value in _values(override)]
    elif group in GROUPS and any(isinstance(value, int | float) for value in _values(override)):
        options = [str(_plain(value)) for value in _values(override)]  # Hydra says which there are
    else:
        return line
    quoted = ",".join(f"'{option}'" for option in options)
    return f"{override.get_key_element()}={quoted}"


def _defer(override: Override, swept_groups: set[str]) -> str | None:
    """A fixed value below a swept group, as a sweep over that one value.

    Hydra would apply it to the group's default option first and refuse it where only the swept
    options have the key; as a sweep it is applied to each cell alone.
    """
    group = override.key_or_group.split(".")[0]
    below = "." in override.key_or_group and group in swept_groups
    if not below or override.is_sweep_override() or override.type is OverrideType.DEL:
        return None
    return f"{override.get_key_element()}=choice({override.get_value_element_as_str()})"


def arguments_of(argv: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Hydra's options, and the unknown ones; overrides may stand before, between and after."""
    return get_args_parser().parse_known_intermixed_args(list(argv))


def _options(argv: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """The arguments that are not overrides: Hydra's own parser wants all overrides in a row."""
    left = list(overrides)
    options = []
    for argument in argv:
        if left and argument == left[0]:
            left.pop(0)
        else:
            options.append(argument)
    return options


def prepare(argv: Sequence[str]) -> list[str]:
    """The same command line: options first, then the overrides, with group options quoted.

    Args:
        argv: arguments without the program's name.

    Raises:
        UserError: an override cannot be parsed, a key is given twice or cannot be set in this way,
            a count is not one.
    """
    known, unknown = arguments_of(argv)
    flags = [argument for argument in unknown if argument.startswith("-")]
    if flags:
        raise UserError(flags[0], "is not an option", "see python train.py --help")
    if known.shell_completion:
        return list(argv)
    overrides = parse(known.overrides)
    for override in overrides:
        refuse(override)
    _refuse_twice(overrides)
    swept = {o.key_or_group for o in overrides if o.is_sweep_override()}
    prepared = [
        _defer(override, swept) or _quote(override)
        for override in overrides
        # No experiment is what there is without the word; Hydra takes no null for a group.
        if not (override.key_or_group == "experiment" and override.value() is None)
    ]
    return [*_options(argv, known.overrides), *prepared]
