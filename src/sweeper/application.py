"""What the launcher asks of this application: which runs a sweep consists of.

All cells are composed by then. Here they are resolved, checked and hashed, duplicates collapse,
repeats are laid out, and what an earlier command already completed is kept. Nothing has started
yet: one bad cell stops the sweep.
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from sweeper.config import NOT_MEASURED, Config, check, config_id, run_id
from sweeper.errors import UserError, nearest
from sweeper.instantiate import check_target
from sweeper.launch.packed import PackedConfig
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
    config: PackedConfig  # with the hydra node
    resources: Resources
    plain: dict[str, Any]  # resolved values, without it
    overrides: list[str]
    config_id: str
    repeats: int = 1
    varying: list[str] = field(default_factory=list)  # overrides that tell it from other cells
    choices: dict[str, str] = field(default_factory=dict)


def _strip_quotes(override: str) -> str:
    """`gpus='4'` as the user wrote it: gpus=4."""
    return re.sub(r"='([\w.+-]+)'$", r"=\1", override)


def _resolve(config: DictConfig) -> Config:
    """The application's tree as objects; interpolations may refer to hydra's."""
    HydraConfig.instance().set_config(config)
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

    def plan(self, configs: Iterable[DictConfig], overrides: Sequence[Sequence[str]]) -> list[Run]:
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
        sweep_dir = Path(str(first.config.unpack().hydra.sweep.dir)).resolve()
        command = self._continue_command(name)
        SweepFile.open(sweep_dir, name, command, first.plain["sweep"])
        if self.sweep_dir is None:  # a sweeper may come with several batches of jobs
            print(f"sweep {name} in {_short(sweep_dir)}\ncontinue it with: {command}", flush=True)
        self.sweep_dir = sweep_dir
        return self._runs(cells, name, sweep_dir)

    def _cells(
        self, configs: Iterable[DictConfig], overrides: Sequence[Sequence[str]]
    ) -> list[Cell]:
        cells: dict[str, Cell] = {}
        for job, (config, given) in enumerate(zip(configs, overrides, strict=True)):
            typed = _resolve(config)
            plain = asdict(typed)
            try:
                _check(typed, plain)
            except UserError as error:
                raise _in_context(error, given) from error
            identity = config_id(plain)
            if identity in cells:
                cells[identity].jobs.append(job)
                continue
            cells[identity] = Cell(
                jobs=[job],
                config=PackedConfig(config),
                resources=Resources.from_config(config),
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
            told = [o for o in cell.overrides if o not in fixed and _key(o) not in NOT_MEASURED]
            cell.varying = [o.lstrip("+") for o in told]
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
            command=shlex.join(["python", "train.py", *_alone(cell.overrides)]),
        )
        directory = f"{_slug(cell.varying)}-{identity.run_id}"
        run_dir = existing.get(identity.run_id, sweep_dir / directory)
        return Run(
            identity=identity,
            config=cell.config,
            plain=cell.plain,
            run_dir=run_dir,
            resources=cell.resources,
            job_numbers=cell.jobs if repeat == 0 else [],
            cost=_cost(cell),
            keep=_is_kept(run_dir, str(cell.plain["rerun"])),
        )

    def _continue_command(self, name: str) -> str:
        words = [word for word in self.argv if not word.startswith("sweep.name=")]
        return "python train.py " + shlex.join([*words, f"sweep.name={name}"])


def _key(override: str) -> str:
    """The top of what it sets: `train` of ++train.steps=9."""
    return re.split(r"[.=@]", override.lstrip("+~"), maxsplit=1)[0]


def _alone(overrides: Sequence[str]) -> list[str]:
    """What repeats a run in a sweep of its own."""
    return [o for o in overrides if _key(o) not in ("sweep", "rerun")]


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
