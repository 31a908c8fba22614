"""A sweeper that asks for new values as results come in: Hydra's Optuna sweeper."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import yaml
from launch_app import Sweep

PROGRAM = Path(__file__).parent / "generic" / "parabola.py"

if importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None:
    reason = "hydra-optuna-sweeper is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def test_it_finds_a_minimum_from_the_values_of_the_runs(sweep: Sweep) -> None:
    done = sweep(
        "-m",
        "hydra/launcher=local",
        "hydra/sweeper=optuna",
        "hydra.sweeper.sampler.seed=1",
        "hydra.sweeper.direction=minimize",
        "hydra.sweeper.n_trials=6",
        "hydra.sweeper.n_jobs=2",
        "hydra.launcher.preload=[]",
        "hydra.sweep.dir=sweep",
        "+x=interval(-3,3)",
        program=PROGRAM,
    )
    assert done.returncode == 0, done.stdout
    tried = []
    for number in range(6):  # two at a time, one batch after another
        (override,) = yaml.safe_load(
            (sweep.dir / str(number) / ".hydra" / "overrides.yaml").read_text()
        )
        tried.append(float(override.removeprefix("+x=")))
    assert len(set(tried)) == 6
    best = min(tried, key=lambda x: abs(x - 1))
    results = yaml.safe_load((sweep.dir / "optimization_results.yaml").read_text())
    assert results["best_params"] == {"+x": pytest.approx(best)}
    assert results["best_value"] == pytest.approx((best - 1) ** 2 + 2)
    sweep.assert_nothing_left()
