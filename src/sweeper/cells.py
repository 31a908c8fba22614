"""The cells of a sweep: each composed configuration resolved, checked and hashed once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeper.config import NOT_MEASURED, Config, check, config_id
from sweeper.errors import UserError, nearest
from sweeper.instantiate import check_target
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Resources
from sweeper.sweep_place import sweep_name
from sweeper.typed_command import key_of

# Arguments of each open node that the program supplies itself.
GIVEN: dict[str, tuple[str, ...]] = {
    "model": (),
    "data": ("split",),
    "optim": ("params",),
    "lr": ("total_steps",),
    "tracker": (),
}

_SHOWN = 3  # configurations named in the line about cells that are the same


@dataclass
class Cell:
    """One composed configuration."""

    jobs: list[int]  # positions in the launcher's list
    config: PackedConfig  # with the hydra node
    resources: Resources
    plain: dict[str, Any]  # resolved values, without it
    overrides: list[str]
    config_id: str
    sweep_dir: str  # as given
    repeats: int = 1
    varying: list[str] = field(default_factory=list)  # overrides that tell it from other cells
    choices: dict[str, str] = field(default_factory=dict)
    also: list[list[str]] = field(default_factory=list)  # other overrides that come to the same


def gather(configs: Iterable[DictConfig], overrides: Sequence[Sequence[str]]) -> list[Cell]:
    """The distinct configurations, in the order given.

    Args:
        configs: one composed config a job, with its hydra node; each is asked for once.
        overrides: the overrides of each job.

    Raises:
        UserError: a cell is wrong, or contradicts another.
    """
    cells: dict[str, Cell] = {}
    for job, (config, given) in enumerate(zip(configs, overrides, strict=True)):
        if config.sweep.name is None:
            config.sweep.name = sweep_name(None)
        typed = _resolve(config)
        plain = asdict(typed)
        try:
            _check(typed, plain)
            resources = Resources.from_config(config)
            _check_ranks(resources, typed.gpus.count)
        except UserError as error:
            raise _in_context(error, given) from error
        words = [_strip_quotes(o) for o in given]
        identity, sweep_dir = config_id(plain), str(config.hydra.sweep.dir)
        if cells:
            _check_same_sweep(next(iter(cells.values())), plain, sweep_dir)
        if identity in cells:
            _join(cells[identity], job, words, plain)
            continue
        cells[identity] = Cell(
            jobs=[job],
            config=PackedConfig(config),
            resources=resources,
            plain=plain,
            overrides=words,
            config_id=identity,
            sweep_dir=sweep_dir,
            repeats=typed.repeat,
            choices={
                group: str(option)
                for group, option in config.hydra.runtime.choices.items()
                if not group.startswith("hydra/") and group not in NOT_MEASURED
            },
        )
    found = list(cells.values())
    # What all cells share tells none apart; a single cell is called by all it was given.
    fixed = set.intersection(*(set(c.overrides) for c in found)) if len(found) > 1 else set()
    for cell in found:
        told = [o for o in cell.overrides if o not in fixed and key_of(o) not in NOT_MEASURED]
        cell.varying = [o.lstrip("+") for o in told]
    return found


def same_configurations(cells: Sequence[Cell]) -> str | None:
    """One line about overrides that differ and come to the same configuration, or None."""
    groups = []
    for cell in cells:
        if cell.also:
            sets = [cell.overrides, *cell.also]
            shared = set.intersection(*map(set, sets))
            names = [" ".join(o for o in each if o not in shared) or "the rest" for each in sets]
            groups.append(" and ".join(names))
    if not groups:
        return None
    more = f"; and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    return f"the same configuration, run once: {'; '.join(groups[:_SHOWN])}{more}"


def _strip_quotes(override: str) -> str:
    """`gpus='4'` as the user wrote it: gpus=4."""
    return re.sub(r"='([\w.+-]+)'$", r"=\1", override)


def _resolve(config: DictConfig) -> Config:
    """The application's tree as objects; interpolations may refer to hydra's."""
    values: dict[str, Any] = {str(key): config[key] for key in config if key != "hydra"}
    known = [each.name for each in fields(Config)]
    for key in values:
        if key not in known:  # appended with a +
            near = nearest(key, known)
            remedy = f"did you mean {near}?" if near else "python train.py --help lists all keys"
            raise UserError(key, "there is no such key", remedy)
    for key, value in values.items():
        if OmegaConf.is_config(value):
            values[key] = OmegaConf.to_object(value)
    return Config(**values)


def _check(config: Config, plain: dict[str, Any]) -> None:
    check(config)
    for key, given in GIVEN.items():
        node = plain[key]
        if node is not None:
            check_target(node, key, given)
    check_target(plain["model"].get("objective") or {}, "model.objective")
    rate = plain["optim"].get("lr")
    if isinstance(rate, int | float) and not (rate > 0 and math.isfinite(rate)):
        raise UserError("optim.lr", f"{rate} is not a learning rate", "use a finite value above 0")


def _check_ranks(need: Resources, gpus: int) -> None:
    """Tables go by `gpus`; what runs must be that."""
    ranks = need.world_size
    if ranks == gpus:
        return
    if need.nodes == 1:
        key, also = "hydra.launcher.gpus_per_node", ""
    else:
        key = "hydra.launcher.nodes"
        also = (
            f" hydra.launcher.nodes={need.nodes} hydra.launcher.gpus_per_node={need.ranks_per_node}"
        )
    raise UserError(
        key,
        f"would start {ranks} ranks, but gpus={gpus}",
        f"set gpus={ranks}{also}, or leave {key} out",
    )


def _in_context(error: UserError, overrides: Sequence[str]) -> UserError:
    if not overrides:
        return error
    cell = " ".join(map(_strip_quotes, overrides))
    return UserError(error.key, f"{error.problem} (in the cell {cell})", error.remedy)


def _check_same_sweep(first: Cell, plain: dict[str, Any], sweep_dir: str) -> None:
    one, other = first.plain["sweep"]["name"], plain["sweep"]["name"]
    key = "sweep.name" if one != other else "hydra.sweep.dir"
    if one != other or first.sweep_dir != sweep_dir:
        values = (one, other) if one != other else (first.sweep_dir, sweep_dir)
        raise UserError(
            key,
            f"{values[0]} and {values[1]} are given in one command, which is one sweep",
            "give one value, or two commands",
        )


def _join(cell: Cell, job: int, words: list[str], plain: dict[str, Any]) -> None:
    """One more job of a configuration that is there already."""
    for key in ("repeat", "rerun", "tracker", "mode", "train.minutes"):
        top, _, rest = key.partition(".")
        one, other = cell.plain[top], plain[top]
        if rest:
            one, other = one[rest], other[rest]
        if one != other:
            raise UserError(
                key,
                f"{one} and {other} are given for one configuration ({' '.join(words)})",
                f"give one value of {key}",
            )
    cell.jobs.append(job)
    if words != cell.overrides and words not in cell.also:
        cell.also.append(words)
