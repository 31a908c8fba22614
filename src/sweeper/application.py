"""What the launcher asks of this application: which runs a sweep consists of.

All cells are composed by then. Here they are resolved, checked and hashed, duplicates collapse,
repeats are laid out, and what an earlier command already completed is kept. Nothing has started
yet: one bad cell stops the sweep.
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from sweeper.config import NOT_MEASURED, Config, check, config_id, run_id
from sweeper.errors import UserError
from sweeper.instantiate import check_target
from sweeper.launch.runs import Resources, Run
from sweeper.record import RECORD_FILE, Identity, RecordError, Status, read_record
from sweeper.sweep_file import SweepFile

# Arguments of each open node that the program supplies itself.
GIVEN: dict[str, tuple[str, ...]] = {
    "model": (),
    "data": ("split",),
    "optim": ("params",),
    "lr": ("total_steps",),
    "tracker": (),
}


def task(config: DictConfig) -> float | None:
    """The task function of every run; imports torch only where a run really runs.

    Returns:
        The validation loss, for sweepers that search for its minimum.
    """
    from sweeper.run import run

    return run(cast(Config, OmegaConf.to_object(config)))


@dataclass
class Cell:
    """One composed configuration."""

    jobs: list[int]  # positions in the launcher's list
    config: DictConfig  # with the hydra node
    plain: dict[str, Any]  # resolved values, without it
    overrides: list[str]
    config_id: str
    repeats: int = 1
    varying: list[str] = field(default_factory=list)  # overrides that tell it from other cells
    choices: dict[str, str] = field(default_factory=dict)


def _strip_quotes(override: str) -> str:
    """`gpus='4'` as the user wrote it: gpus=4."""
    return re.sub(r"='([\w.+-]+)'$", r"=\1", override)


def _resolve(config: DictConfig) -> dict[str, Any]:
    """The application's tree as plain values; interpolations may refer to hydra."""
    HydraConfig.instance().set_config(config)
    tree = config.copy()
    with open_dict(tree):
        tree.pop("hydra", None)
    plain = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    return cast(dict[str, Any], plain)


def _check(plain: dict[str, Any]) -> Config:
    config = cast(Config, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), plain)))
    check(config)
    for key, given in GIVEN.items():
        node = plain[key]
        if node is not None:
            check_target(node, key, given)
    check_target(plain["model"].get("objective") or {}, "model.objective")
    return config


def _slug(overrides: Sequence[str]) -> str:
    """A readable directory name of at most 100 bytes, safe in every shell and file system."""
    words = [re.sub(r"[^\w.+-]+", "-", o.lstrip("+~"), flags=re.ASCII) for o in overrides]
    return "_".join(word.strip("-") for word in words)[:100].strip("_-.") or "run"


def _in_context(error: UserError, overrides: Sequence[str]) -> UserError:
    if not overrides:
        return error
    cell = " ".join(map(_strip_quotes, overrides))
    return UserError(error.key, f"{error.problem} (in the cell {cell})", error.remedy)


class SweepApplication:
    """The planning half of the program; `sweeper.run` is the running half."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.sweep_dir: Path | None = None

    def bind(self, function: Callable[[DictConfig], Any]) -> Callable[[DictConfig], Any]:
        """Let the launcher find this application on the task function."""
        function.sweeper_application = self  # type: ignore[attr-defined]  # read by the launcher
        return function

    def plan(self, configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]]) -> list[Run]:
        """The runs of the sweep, in the order given.

        Raises:
            UserError: a cell is wrong; nothing has been written.
        """
        cells = self._cells(configs, overrides)
        first = cells[0]
        name = str(first.plain["sweep"]["name"])
        if not re.fullmatch(r"[\w.+=-][\w.+= -]*", name):
            raise UserError(
                "sweep.name", f"{name!r} is not a directory name", "use letters, digits, - and _"
            )
        sweep_dir = Path(str(first.config.hydra.sweep.dir)).resolve()
        command = self._continue_command(name)
        SweepFile.open(sweep_dir, name, command, first.plain["sweep"])
        self.sweep_dir = sweep_dir
        print(f"sweep {name} in {_short(sweep_dir)}\ncontinue it with: {command}", flush=True)
        return self._runs(cells, name, sweep_dir)

    def _cells(
        self, configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]]
    ) -> list[Cell]:
        cells: dict[str, Cell] = {}
        for job, (config, given) in enumerate(zip(configs, overrides, strict=True)):
            plain = _resolve(config)
            try:
                typed = _check(plain)
            except UserError as error:
                raise _in_context(error, given) from error
            identity = config_id(plain)
            if identity in cells:
                cells[identity].jobs.append(job)
                continue
            cells[identity] = Cell(
                jobs=[job],
                config=config,
                plain=plain,
                overrides=[_strip_quotes(o) for o in given],
                config_id=identity,
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
            cell.varying = [o.lstrip("+") for o in cell.overrides if o not in fixed]
        return found

    def _runs(self, cells: Sequence[Cell], name: str, sweep_dir: Path) -> list[Run]:
        rounds = max(cell.repeats for cell in cells)
        existing = {path.name.rsplit("-", 1)[-1]: path for path in sweep_dir.glob("*-*")}
        runs: list[Run] = []
        for repeat in range(rounds):
            order = [cell for cell in cells if repeat < cell.repeats]
            if rounds > 1:
                # Interleaved in random order, so that a drift of the machine hits all variants.
                random.Random(f"{first_seed(order)}/{repeat}").shuffle(order)
            runs.extend(self._run(cell, repeat, name, sweep_dir, existing) for cell in order)
        for run in runs if rounds > 1 else ():
            run.cost = 1.0  # equal, so that the launcher keeps this order
        return runs

    def _run(
        self, cell: Cell, repeat: int, name: str, sweep_dir: Path, existing: dict[str, Path]
    ) -> Run:
        identity = Identity(
            sweep=name,
            run_id=run_id(name, cell.config_id, repeat),
            config_id=cell.config_id,
            repeat=repeat,
            overrides=cell.overrides,
            choices=cell.choices,
            variant=re.sub(r"\s+", "-", "+".join(cell.varying)) or "default",
            command="python train.py " + shlex.join(cell.overrides),
        )
        directory = f"{_slug(cell.varying)}-{identity.run_id}"
        run_dir = existing.get(identity.run_id, sweep_dir / directory)
        return Run(
            identity=identity,
            config=cell.config,
            plain=cell.plain,
            run_dir=run_dir,
            resources=Resources.from_config(cell.config),
            job_numbers=cell.jobs if repeat == 0 else [],
            cost=_cost(cell),
            keep=_is_kept(run_dir, str(cell.plain["rerun"])),
        )

    def _continue_command(self, name: str) -> str:
        words = [word for word in self.argv if not word.startswith("sweep.name=")]
        return "python train.py " + shlex.join([*words, f"sweep.name={name}"])


def _cost(cell: Cell) -> float:
    """Few ranks first; among equals the usual baseline, so that a comparison is there early."""
    usual = {"precision": "fp32", "ckpt": "off", "accum": "1"}
    is_baseline = all(cell.choices.get(group) == option for group, option in usual.items())
    return float(cell.plain["gpus"]["count"]) - 0.5 * is_baseline


def _short(path: Path) -> str:
    """As the person would type it: relative where it lies below the current directory."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def first_seed(cells: Sequence[Cell]) -> int:
    return int(cells[0].plain["seed"]) if cells else 0


def _is_kept(run_dir: Path, rerun: str) -> bool:
    """Whether an earlier command's record stands."""
    if rerun == "all":
        return False
    try:
        record = read_record(run_dir / RECORD_FILE)
    except (FileNotFoundError, RecordError):
        return False  # none, or a broken one: the run is done again
    return rerun == "none" or record.status is Status.COMPLETED
