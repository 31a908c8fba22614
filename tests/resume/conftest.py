"""Runs whose attempts are started one by one, as a launcher would, and that can be disturbed."""

from __future__ import annotations

import csv
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict

from sweeper.cli import register
from sweeper.config import config_id
from sweeper.failure import read_failures
from sweeper.place import Place
from sweeper.record import RECORD_FILE, STEPS_FILE, Identity, Record, read_record, write_identity

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

# Everything that a snapshot must hold is in play: momentum, average, schedule, clipping, dropout.
OVERRIDES = (
    "model.depth=1",
    "train.steps=10",
    "train.ema_decay=0.9",
    "train.max_grad_norm=1.0",
    "measure.warmup_steps=2",
    "measure.steps=2",
    "batch.size=8",
    "evaluate.samples=16",
    "lr=cosine",
    "tracker=none",
    "hardware.threads=1",
    "data._target_=disturbances.DisturbingDigits",
    "optim._target_=disturbances.DisturbingAdamW",
)


class Ranks:
    """The process that forks ranks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm_ranks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, order: dict[str, Any]) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Run:
    """One run, whose attempts are called for by number."""

    def __init__(self, ranks: Ranks, run_dir: Path, plain: dict[str, Any]) -> None:
        self.dir, self.config, self._ranks = run_dir, plain, ranks
        run_dir.mkdir()
        identity = Identity(sweep="s", run_id="r", config_id=config_id(plain))
        write_identity(run_dir, identity)

    def attempt(
        self, number: int, disturb: str = "", largest_file_bytes: int | None = None
    ) -> list[int]:
        """Run it to its end; returns the exit code of each rank."""
        world_size = self.config["gpus"]["count"]
        place = Place(self.dir, world_size=world_size, ranks_per_node=world_size, attempt=number)
        return self._ranks(
            {
                "environment": {**place.environment(), "SWEEPER_DISTURB": disturb},
                "config": self.config,
                "largest_file_bytes": largest_file_bytes,
            }
        )

    @property
    def record(self) -> Record:
        return read_record(self.dir / RECORD_FILE)

    @property
    def steps(self) -> list[dict[str, str]]:
        with (self.dir / STEPS_FILE).open() as file:
            return list(csv.DictReader(file))

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.steps]

    def stopped_at(self, attempt: int) -> list[int]:
        """The step after which each rank says it stopped."""
        files = sorted((self.dir / f"attempt{attempt}").glob("stopped.rank*"))
        return [int(path.read_text()) for path in files]

    def failures(self, attempt: int) -> list[str]:
        return [failure.message for failure in read_failures(self.dir / f"attempt{attempt}")]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    found = Ranks()
    yield found
    found.end()


MakeRun = Callable[..., Run]


@pytest.fixture(scope="session")
def make_run(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """`make_run(*overrides)` gives a new run in a directory of its own."""
    register()

    @functools.cache
    def plain(*overrides: str) -> dict[str, Any]:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("config", [*OVERRIDES, *overrides])
        with open_dict(config):
            config.pop("hydra", None)
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))

    def make(*overrides: str) -> Run:
        return Run(ranks, tmp_path_factory.mktemp("run") / "run", plain(*overrides))

    return make


@pytest.fixture(scope="session")
def whole(make_run: MakeRun) -> Run:
    """The uninterrupted run."""
    run = make_run()
    assert run.attempt(0) == [0]
    return run
