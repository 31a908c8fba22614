"""A sweep of a thousand runs: what it costs the command itself, and how it is shown."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sweeper import status
from sweeper.launch.attempt import Attempt
from sweeper.launch.debug import DebugBackend
from sweeper.launch.launcher import launch
from sweeper.launch.runs import Run
from sweeper.launch.settings import Settings
from sweeper.launch.view import PlainView
from sweeper.record import Identity, Record, Status, write_record

RUNS = 1000


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
    return Run(identity=who, config=OmegaConf.create(), run_dir=sweep_dir / name, plain=plain)


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
