"""From an exception to one message that names the key and the remedy.

Hydra and OmegaConf say what they could not do; the person wants to know what to type instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError

from sweeper.errors import UserError, nearest

_MISSING_OPTION = re.compile(r"Could not find '(?:(?P<group>.*)/)?(?P<option>[^/']*)'")
_THERE_ALREADY = re.compile(
    r"An item is already at '(?P<key>[^']+)'|Multiple values for (?P<group>[^\s.]+)\."
)
_NO_TEXT = "Config group override must be a string"
_MISSING_GROUP = re.compile(r"Could not override '(?P<key>[^']+)'")


def _chain(error: BaseException) -> list[BaseException]:
    """The error and everything it was raised from, outermost first."""
    chain: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and inner not in chain:
        chain.append(inner)
        inner = inner.__cause__ or inner.__context__
    return chain


def _tree_keys(node: object, prefix: str = "") -> list[str]:
    if not isinstance(node, DictConfig):
        return []
    keys = []
    for name in map(str, node):
        keys.append(f"{prefix}{name}")
        if not OmegaConf.is_missing(node, name) and not OmegaConf.is_interpolation(node, name):
            keys.extend(_tree_keys(node[name], f"{prefix}{name}."))
    return keys


def lacking_options(key: str, overrides: Sequence[str], loader: ConfigLoader) -> list[str]:
    """The options of a swept group that lack `key` (e.g. `vit` where only `dit` has a depth)."""
    group, _, rest = key.partition(".")
    chosen = [o.partition("=")[2] for o in overrides if o.lstrip("+").startswith(f"{group}=")]
    if not rest or not chosen:
        return []
    lacking = []
    for option in chosen[-1].split(","):
        name = option.strip("'\" ")
        for source in loader.get_sources():
            if source.is_config(f"{group}/{name}"):
                config = source.load_config(f"{group}/{name}").config
                if OmegaConf.select(config, rest) is None:
                    lacking.append(name)
                break
    return lacking


@dataclass(frozen=True)
class Known:
    """What could have been meant: the config's sources, and a composed default tree."""

    loader: ConfigLoader
    tree: DictConfig | None  # None where the defaults themselves cannot be composed

    @property
    def keys(self) -> list[str]:
        return [
            name
            for name in _tree_keys(self.tree)
            if not name.startswith("hydra") or name.startswith("hydra.launcher.")
        ]

    @property
    def groups(self) -> list[str]:
        return list(self.loader.list_groups(""))

    def is_mapping(self, key: str) -> bool:
        return self.tree is not None and isinstance(OmegaConf.select(self.tree, key), DictConfig)

    def options(self, group: str) -> list[str]:
        return list(self.loader.get_group_options(group, ObjectType.CONFIG))


def explain(error: BaseException, overrides: Sequence[str], known: Known) -> str | None:
    """One message for an error the user can put right, or None for a fault of the program."""
    chain = _chain(error)
    for item in chain:
        if isinstance(item, UserError):
            return str(item)
    text = "\n".join(str(item) for item in chain)

    for item in chain:
        if isinstance(item, MarkedYAMLError):
            return str(_bad_yaml(item))
        if isinstance(item, MissingConfigException):
            return str(_missing_option(item, known))
        if isinstance(item, MissingMandatoryValue):
            key = item.full_key or str(item.key)
            return str(UserError(key, "has no value", f"set {key}=..."))
    if "Unsupported item value in defaults" in text:
        return str(
            UserError(
                "defaults",
                text.splitlines()[0],
                'quote on, off and numbers in a defaults list: - ckpt: "on", - gpus: "4"',
            )
        )
    match = _THERE_ALREADY.search(text)
    if match:
        key = match["key"] or match["group"]
        typed = [o.lstrip("+") for o in overrides if o.lstrip("+").startswith(f"{key}=")]
        again = typed[0] if typed else f"{key}=..."
        return str(UserError(key, "has a value already", f"leave the + out: {again}"))
    if _NO_TEXT in text:
        key = _group_without_text(overrides, known)
        return str(UserError(key, "its options are text", f"""quote it: {key}="'...'" """.rstrip()))
    match = _MISSING_GROUP.search(text)
    if match:
        return str(_unknown(match["key"].split("@")[0], known, overrides))
    for item in chain:
        if isinstance(item, OmegaConfBaseException):
            key = str(item.full_key or item.key or "config")
            first = (item.msg or str(item)).splitlines()[0]
            if "not in struct" in str(item) or "not in '" in str(item):
                return str(_unknown(key, known, overrides))
            return str(UserError(key, first, f"correct the value of {key}"))
    for item in chain:
        if isinstance(item, HydraException):
            return str(item)
        if isinstance(item, OSError) and item.filename is not None:
            return str(
                UserError(
                    "hydra.sweep.dir",
                    f"{item.filename} cannot be used: {item.strerror}",
                    "choose a writable directory with sweep.dir=DIR or hydra.sweep.dir=DIR",
                )
            )
    return None


def _bad_yaml(error: MarkedYAMLError) -> UserError:
    mark = error.problem_mark or error.context_mark
    place = f"{mark.name}:{mark.line + 1}" if mark is not None else "a config file"
    return UserError(place, f"is not YAML: {error.problem or error.context}", "correct that line")


def _group_without_text(overrides: Sequence[str], known: Known) -> str:
    """The group that was given a number or null, as far as the command line tells."""
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        name = group.split("@")[0]
        if re.fullmatch(r"[\d.]+|null|true|false", value) and name in known.groups:
            return name
    return "config group"


def _missing_option(error: MissingConfigException, known: Known) -> UserError:
    match = _MISSING_OPTION.search(str(error))
    missing = match["option"] if match else str(error.missing_cfg_file)
    group = (match["group"] if match else None) or ""
    options = list(error.options or (known.options(group) if group else []))
    near = nearest(missing, options)
    hint = f"did you mean {group}={near}? " if near else ""
    return UserError(
        group or "config", f"there is no option {missing!r}", f"{hint}options: {', '.join(options)}"
    )


def _unknown(key: str, known: Known, overrides: Sequence[str]) -> UserError:
    options = lacking_options(key, overrides, known.loader)
    if options:
        group = key.split(".")[0]
        return UserError(
            key,
            f"there is no such key in {group}={', '.join(options)}",
            f"leave those options out, or add the key where it is missing with ++{key}=...",
        )
    given = [override.lstrip("+~").partition("=") for override in overrides]
    if key.startswith("hydra.launcher.") and not any(name == key for name, _, _ in given):
        chosen = [option for name, _, option in given if name == "hydra/launcher"]
        return UserError(
            "hydra/launcher",
            f"{chosen[-1] if chosen else 'this launcher'} cannot be used here",
            "use hydra/launcher=local, debug or slurm",
        )
    entries = re.match(r"\{\s*([\w.-]+)\s*:\s*([^,}]*)", {n: v for n, _, v in given}.get(key, ""))
    if entries and known.is_mapping(key):
        return UserError(
            key,
            "takes new entries one by one",
            f"+{key}.{entries[1]}={entries[2].strip()}",
        )
    names = [*known.keys, *known.groups]
    near = nearest(key, names)
    if near is None:
        same_last = [name for name in names if name.split(".")[-1] == key.split(".")[-1]]
        near = same_last[0] if same_last else None
    remedy = f"did you mean {near}?" if near else "python train.py --help lists all keys"
    return UserError(key, "there is no such key", remedy)
