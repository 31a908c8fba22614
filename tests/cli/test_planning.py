"""Which runs a sweep consists of, planned in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import ROOT
from hydra import compose, initialize_config_dir

from sweeper.application import SweepApplication
from sweeper.cli import register
from sweeper.errors import UserError
from sweeper.launch.attempt import next_attempt, write_plan
from sweeper.launch.lock import SweepLock
from sweeper.launch.runs import Run

Plan = Callable[..., list[Run]]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """`plan(cells, *fixed)`: the runs of a command whose cells have these overrides."""
    register()

    def call(cells: Sequence[Sequence[str]], *fixed: str, name: str | None = "s") -> list[Run]:
        given = [[*cell, *fixed] for cell in cells]
        place = f"hydra.sweep.dir='{tmp_path}/{name}'"
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3", job_name="train"):
            configs = [
                compose(
                    "config",
                    [place, f"sweep.name={name or 'null'}", "hydra.runtime.output_dir=.", *each],
                    return_hydra_config=True,
                )
                for each in given
            ]
        return SweepApplication(["-m", *fixed]).plan(configs, given)

    return call


def start(runs: list[Run]) -> None:
    for run in runs:
        write_plan(next_attempt(run))


@pytest.mark.parametrize(
    ("override", "key"),
    [("repeat=2", "repeat"), ("train.minutes=1", "train.minutes"), ("tracker=none", "tracker")],
)
def test_one_configuration_with_two_values_of_what_is_not_measured(
    plan: Plan, tmp_path: Path, override: str, key: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan([[], [override]])
    assert caught.value.key == key
    assert not list(tmp_path.iterdir())


def test_a_command_is_one_sweep(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        plan([["seed=1"], ["seed=2", "sweep.name=b"]])
    assert not list(tmp_path.iterdir())
    assert caught.value.key == "sweep.name"


def test_overrides_that_come_to_the_same_are_said_to(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = plan([["ckpt='on'"], ["ckpt='off'"], ["ckpt='on'"]], "ckpt.enabled=true")
    assert run.job_numbers == [0, 1, 2]
    assert "the same configuration, run once: ckpt=on and ckpt=off\n" in capsys.readouterr().out


def test_the_same_twice_needs_no_word(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan([["seed=1"], ["seed=1"]])
    assert "the same configuration" not in capsys.readouterr().out


def test_no_name_is_a_new_one(plan: Plan) -> None:
    (run,) = plan([[]], name=None)
    assert run.identity.sweep == run.plain["sweep"]["name"]
    assert run.identity.sweep.startswith("20")


@pytest.mark.parametrize(
    ("overrides", "ranks"),
    [
        (["hydra.launcher.gpus_per_node=2"], 2),
        (["hydra/launcher=slurm", "hydra.launcher.nodes=3"], 3),
        (["gpus='4'", "hydra.launcher.gpus_per_node=1"], 1),
    ],
)
def test_ranks_are_what_the_table_says(plan: Plan, overrides: list[str], ranks: int) -> None:
    with pytest.raises(UserError) as caught:
        plan([overrides])
    assert f"would start {ranks} ranks" in caught.value.problem
    assert f"set gpus={ranks}" in caught.value.remedy
    assert caught.value.key in ("hydra.launcher.gpus_per_node", "hydra.launcher.nodes")


def test_ranks_over_nodes_that_come_to_gpus(plan: Plan) -> None:
    nodes = ("hydra.launcher.nodes=2", "hydra.launcher.gpus_per_node=2")
    (run,) = plan([["hydra/launcher=slurm", "gpus='4'", *nodes]])
    assert run.resources.world_size == 4


def test_continuing_with_other_configurations_is_refused(plan: Plan, tmp_path: Path) -> None:
    start(plan([["seed=1"], ["seed=2"], ["seed=3"]]))
    before = (tmp_path / "s" / "sweep.json").read_bytes()
    with pytest.raises(UserError) as caught:
        plan([["seed=1"], ["seed=2"]], "train.steps=50")
    assert "3 of the 3 configurations" in caught.value.problem
    with pytest.raises(UserError) as caught:
        plan([["seed=1"], ["seed=4"]])
    assert "2 of the 3 configurations" in caught.value.problem
    assert "sweep.allow_change=true" in caught.value.remedy
    assert (tmp_path / "s" / "sweep.json").read_bytes() == before
    assert len(plan([["seed=4"]], "sweep.allow_change=true")) == 1


def test_continuing_with_more_goes_on_and_keeps_the_newer_command(
    plan: Plan, tmp_path: Path
) -> None:
    start(plan([["seed=1"], ["seed=2"]]))
    more = plan([["seed=1"], ["seed=2"], ["seed=3"]], "repro=fast")
    assert len(more) == 3
    kept = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert kept["command"] == "python train.py -m repro=fast sweep.name=s"


def test_a_command_on_a_sweep_that_another_works_on_changes_nothing(
    plan: Plan, tmp_path: Path
) -> None:
    start(plan([["seed=1"]]))
    before = (tmp_path / "s" / "sweep.json").read_bytes()
    with SweepLock(tmp_path / "s"), pytest.raises(UserError) as caught:
        plan([["seed=1"], ["seed=2"]], "repro=fast")
    assert "another command works on" in caught.value.problem
    assert (tmp_path / "s" / "sweep.json").read_bytes() == before


def test_a_sweeper_that_asks_and_tells_may_bring_others(plan: Plan) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    start(plan([["seed=1"]]))
    assert len(plan([["seed=2"]], "hydra/sweeper=optuna")) == 1
