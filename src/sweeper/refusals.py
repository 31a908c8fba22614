"""Overrides that Hydra takes, or answers with an internal error, and that mean nothing here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from hydra.core.override_parser.types import Override, OverrideType

from sweeper.config import Config
from sweeper.errors import UserError

# Config groups of the shipped conf/, every one of which has an option in every run.
GROUPS = (
    "model",
    "data",
    "precision",
    "ckpt",
    "accum",
    "gpus",
    "parallel",
    "optim",
    "lr",
    "tracker",
    "hardware",
    "mode",
)
HYDRA_GROUPS = ("hydra/launcher", "hydra/sweeper")
OPEN = ("model", "data", "optim", "lr", "tracker")  # their arguments may be left out

# What a command has one of: the runs do not differ in it, so that a sweep would lose values.
ONCE = ("sweep", "repeat", "rerun", "tracker", "mode", "train.minutes")

_OFF = {"tracker": "tracker=none", "ckpt": "ckpt=off", "optim": "optim=adamw", "lr": "lr=constant"}


def is_below(key: str, tops: Collection[str]) -> bool:
    """Whether the key is one of these or lies below one."""
    return any(key == top or key.startswith(f"{top}.") for top in tops)


def refuse(override: Override) -> None:
    """Raises UserError for an override that cannot be meant."""
    key, name = override.key_or_group, override.get_key_element()
    if override.type is OverrideType.DEL:
        _refuse_removal(key, name)
        return
    if key in (*GROUPS, *HYDRA_GROUPS):
        _refuse_no_option(override, key, name)
    if key == "hydra.mode" and str(override.value()) != "MULTIRUN":
        raise UserError(key, "is MULTIRUN: one configuration is a sweep of one", f"leave {key} out")
    if not override.is_sweep_override():
        return
    if key.startswith(("hydra.", "hydra/")):
        more = ""
        if key == "hydra.launcher.timeout_min":
            more = "; each run's own limit is train.minutes"
        elif key == "hydra.launcher.gpus_per_node":
            more = "; each run's own number is gpus"
        raise UserError(key, "holds for the whole command", f"give one value{more}")
    if is_below(key, ONCE):
        raise UserError(
            key,
            "is not part of what is measured, so runs cannot differ in it",
            "give one value" + (", e.g. repeat=5 for five runs of each" if key == "repeat" else ""),
        )


def _refuse_removal(key: str, name: str) -> None:
    top = key.split(".")[0]
    needed = top in {each.name for each in fields(Config)} and (key == top or top not in OPEN)
    if needed or key in HYDRA_GROUPS:
        raise UserError(name, "cannot be removed, every run needs it", _instead(key))


def _refuse_no_option(override: Override, key: str, name: str) -> None:
    if override.package is not None:
        raise UserError(name, f"{key} has one place in the config", f"use {key}=OPTION")
    if not override.is_sweep_override() and override.value() in (None, ""):
        value = "null" if override.value() is None else "an empty word"
        raise UserError(key, f"{value} is not one of its options", _instead(key))


def _instead(key: str) -> str:
    if key in _OFF:
        return f"use {_OFF[key]}, or another option (python train.py --help lists them)"
    if key in ("gpus", "accum"):
        return f"for example {key}=1"
    if key == "hydra/launcher":
        return "use hydra/launcher=local, debug or slurm"
    if key == "hydra/sweeper":
        return "use hydra/sweeper=cells"
    return f"leave it out, or set {key}=... (python train.py --help lists what there is)"
