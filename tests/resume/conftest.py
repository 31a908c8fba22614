"""Runs for tests of their interruption."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict
from single_run import MakeRun, Ranks, Run

from sweeper.cli import register

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

# Everything that a snapshot must hold is in play: momentum, average, schedule, clipping.
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


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    found = Ranks()
    yield found
    found.end()


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
