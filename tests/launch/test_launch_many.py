"""A sweep of a thousand runs: what it costs the command itself, and how it is shown."""

from __future__ import annotations

import copy
import gc
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from commands import ROOT
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from sweeper import status
from sweeper.application import SweepApplication
from sweeper.cli import register
from sweeper.launch.attempt import Attempt
from sweeper.launch.debug import DebugBackend
from sweeper.launch.launcher import launch
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Run
from sweeper.launch.settings import Settings
from sweeper.launch.view import PlainView
from sweeper.record import Identity, Record, Status, write_record

RUNS = 1000
CELLS = 300


class Recording:
    """A task that does nothing but leave its record."""

    def function(self, attempt: Attempt) -> Callable[[], None]:
        record = Record(
            identity=attempt.run.identity, status=Status.COMPLETED, attempt=attempt.number
        )
        return lambda: write_record(attempt.run.run_dir, record) and None


def a_run(sweep_dir: Path, number: int) -> Run:
    name = f"{number:04}"
    who = Identity(sweep="s", run_id=name, config_id=name, variant=f"seed={number}")
    plain = {"seed": number, "model": {f"key{k}": k for k in range(40)}}
    return Run(
        identity=who, config=PackedConfig(OmegaConf.create()), run_dir=sweep_dir / name, plain=plain
    )


def test_a_thousand_runs_cost_the_command_little_and_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_dir = tmp_path / "sweep"
    sweep_dir.mkdir()
    settings, lines = Settings(), list[str]()
    runs = [a_run(sweep_dir, number) for number in range(RUNS)]
    cpu_s, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = launch(
        runs,
        task=Recording(),
        backend=DebugBackend(settings),
        settings=settings,
        view=PlainView(lines.append),
        home=sweep_dir,
        planned_at=time.time(),
    )
    cpu_s, after = time.process_time() - cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [outcome.record.status for outcome in outcomes] == [Status.COMPLETED] * RUNS
    assert sum(line.startswith("completed ") for line in lines) == RUNS
    # CPU time of this process, which others hardly change; everything but composing is in it.
    assert cpu_s / RUNS < 0.05
    assert (after - before) * 1024 / RUNS < 64 * 1024  # bytes a run
    assert status.main([str(sweep_dir)]) == 0
    shown = capsys.readouterr().out
    assert f"{RUNS} completed" in shown
    assert len(shown.splitlines()) < 10  # what has ended is counted, not listed
    print(f"CPU {cpu_s / RUNS * 1e3:.2f} ms a run, {(after - before) / RUNS:.1f} KiB a run")


def test_planning_many_cells_keeps_little_of_each(tmp_path: Path) -> None:
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3", job_name="train"):
        config = compose("config", return_hydra_config=True)
    with open_dict(config.hydra):
        config.hydra.runtime.output_dir = config.hydra.sweep.dir = str(tmp_path / "sweep")
    copies_s = 0.0

    def cells() -> Iterator[DictConfig]:  # as composed, without the time that takes
        nonlocal copies_s
        for seed in range(CELLS):
            started_s = time.process_time()
            cell = copy.deepcopy(config)
            cell.seed = seed
            copies_s += time.process_time() - started_s
            yield cell

    application = SweepApplication(["-m"])
    overrides = [[f"seed={seed}"] for seed in range(CELLS)]
    earlier = application.plan(cells(), overrides)  # with what is made once
    gc.collect()
    before, copies_s, started_s = psutil.Process().memory_info().rss, 0.0, time.process_time()
    runs = application.plan(cells(), overrides)
    cpu_s = time.process_time() - started_s - copies_s
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    assert len(runs) == len(earlier) == CELLS
    assert runs[7].config.unpack().seed == runs[7].plain["seed"] == 7
    assert cpu_s / CELLS < 0.05
    assert grown / CELLS < 40 * 1024  # a composed tree takes 160 KiB
    print(f"CPU {cpu_s / CELLS * 1e3:.2f} ms a cell, {grown / 1024 / CELLS:.1f} KiB a cell")
