"""What the launcher asks of this application: which runs a sweep consists of.

All cells are composed by then. Here they are resolved, checked and hashed, duplicates collapse,
repeats are laid out, and what an earlier command already completed is kept. Nothing has started
yet: one bad cell stops the sweep.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from sweeper.cells import Cell, gather, same_configurations
from sweeper.config import Config, run_id
from sweeper.errors import UserError
from sweeper.launch.lock import SweepLock
from sweeper.launch.runs import Run
from sweeper.record import RECORD_FILE, Identity, RecordError, Status, read_record
from sweeper.sweep_file import SweepFile
from sweeper.sweep_place import check_directory, check_name, unusable
from sweeper.typed_command import PLAIN_PROGRAM, TypedCommand

# Sweepers that give all their jobs at once; others ask for some, and tell from the results.
_ALL_AT_ONCE = ("CellsSweeper", "BasicSweeper")


def task(config: DictConfig) -> float | None:
    """The task function of every run; imports torch only where a run really runs.

    Returns:
        The validation loss, for sweepers that search for its minimum.
    """
    from sweeper.run import run

    return run(cast(Config, OmegaConf.to_object(config)))


def _slug(overrides: Sequence[str]) -> str:
    """A readable directory name of at most 100 bytes, safe in every shell and file system."""
    words = [re.sub(r"[^\w.+-]+", "-", o.lstrip("+~"), flags=re.ASCII) for o in overrides]
    return "_".join(word.strip("-") for word in words)[:100].strip("_-.") or "run"


class SweepApplication:
    """The planning half of the program; `sweeper.run` is the running half.

    Args:
        argv: arguments as typed, without the program's name.
        program: the words before them.
    """

    def __init__(self, argv: Sequence[str], program: Sequence[str] = PLAIN_PROGRAM) -> None:
        self.command = TypedCommand(tuple(argv), tuple(program))
        self.sweep_dir: Path | None = None

    def bind(self, function: Callable[[DictConfig], Any]) -> Callable[[DictConfig], Any]:
        """Let the launcher find this application on the task function."""
        function.sweeper_application = self  # type: ignore[attr-defined]  # read by the launcher
        return function

    def look(self, config: DictConfig) -> None:
        """Check what holds for the whole command, before a sweeper writes anything.

        Args:
            config: composed without the sweep's overrides.

        Raises:
            UserError: the sweep's name or directory is none, or runs would go unseen.
        """
        if config.sweep.name is not None:
            check_name(str(config.sweep.name))
        check_directory(str(config.sweep.dir), "sweep.dir")
        if config.hydra.sweeper.get("max_batch_size") is not None:
            raise UserError(
                "hydra.sweeper.max_batch_size",
                "would start runs before the later ones are checked",
                "leave it out; hydra.launcher.max_parallel=N lets N run at the same time",
            )

    def plan(self, configs: Iterable[DictConfig], overrides: Sequence[Sequence[str]]) -> list[Run]:
        """The runs of the sweep, in the order given.

        Raises:
            UserError: a cell is wrong; nothing has been written.
        """
        cells = gather(_current(configs), overrides)
        first = cells[0]
        name = str(first.plain["sweep"]["name"])
        check_name(name)
        check_directory(first.sweep_dir, "hydra.sweep.dir")
        sweep_dir = Path(first.sweep_dir).resolve()
        command = self.command.continuing(name)
        sweeper = str(first.config.unpack().hydra.sweeper.get("_target_"))
        whole = self.sweep_dir is None and sweeper.endswith(_ALL_AT_ONCE)
        try:
            with SweepLock(sweep_dir):
                SweepFile.open(
                    sweep_dir,
                    name,
                    command,
                    allow_change=bool(first.plain["sweep"]["allow_change"]),
                    planned={cell.config_id for cell in cells} if whole else None,
                )
        except OSError as error:  # of a full disk, which may be found out late
            raise unusable(sweep_dir, error) from error
        if self.sweep_dir is None:  # a sweeper may come with several batches of jobs
            print(f"sweep {name} in {_short(sweep_dir)}\ncontinue it with: {command}", flush=True)
        same = same_configurations(cells)
        if same is not None:
            print(same, flush=True)
        self.sweep_dir = sweep_dir
        return self._runs(cells, name, sweep_dir)

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
            command=self.command.alone(cell.overrides),
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


def _current(configs: Iterable[DictConfig]) -> Iterator[DictConfig]:
    """Each config with its hydra node where interpolations look for it."""
    for config in configs:
        HydraConfig.instance().set_config(config)
        yield config


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
