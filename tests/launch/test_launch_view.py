"""What the person sees: plain lines, the live table, and the status command."""

from __future__ import annotations

import io
import os
from pathlib import Path

import psutil
import pytest
from omegaconf import OmegaConf
from rich.console import Console

from sweeper import status
from sweeper.launch.attempt import Attempt
from sweeper.launch.progress import Progress, counts, read_sweep, sweep_time_left_s
from sweeper.launch.render import duration
from sweeper.launch.runs import Run
from sweeper.launch.view import LiveView, PlainView
from sweeper.record import (
    Failure,
    Identity,
    Record,
    State,
    Status,
    write_identity,
    write_record,
    write_state,
)


def a_run(tmp_path: Path, name: str) -> Run:
    who = Identity(sweep="s", run_id=name, config_id=name, variant=f"lr={name}")
    run = Run(identity=who, config=OmegaConf.create(), run_dir=tmp_path / f"x-{name}")
    run.run_dir.mkdir()
    write_identity(run.run_dir, who)
    return run


def alive() -> State:
    """As a run on this machine writes it."""
    return State(
        state="running",
        phase="measure",
        step=30,
        total_steps=130,
        loss=1.25,
        step_time_s=0.5,
        memory_bytes=3 * 2**20,
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        host=os.uname().nodename,
    )


def ended(run: Run, state: Status, message: str = "") -> Record:
    return Record(
        identity=run.identity,
        status=state,
        error=Failure(type="ValueError", message=message, log="attempt0/rank1.err")
        if message
        else None,
        started_at="2025-01-01T00:00:00+00:00",
        finished_at="2025-01-01T00:01:05+00:00",
    )


def test_plain_lines_name_the_run_the_reason_and_the_log(tmp_path: Path) -> None:
    lines: list[str] = []
    view = PlainView(lines.append)
    run = a_run(tmp_path, "1")
    view.begin(3, 1)
    view.started(run)
    view.ended(run, ended(run, Status.COMPLETED))
    view.ended(run, ended(run, Status.FAILED, "no good\nmore"))
    assert lines == [
        "3 runs, 1 of them recorded already",
        "started   lr=1",
        "completed lr=1 in 1:05 min",
        "failed    lr=1 in 1:05 min: ValueError: no good\n"
        f"          see {run.run_dir}/attempt0/rank1.err",
    ]


def test_the_live_table_shows_each_running_run(tmp_path: Path) -> None:
    text = io.StringIO()
    run = a_run(tmp_path, "1")
    write_state(run.run_dir, alive())
    with LiveView(Console(file=text, force_terminal=True, width=120)) as view:
        view.begin(4, 0)
        view.ended(run, ended(run, Status.COMPLETED))
        view.tick([Attempt(run, 0)], waiting=2)
    shown = text.getvalue()
    for part in ("lr=1", "measure", "30/130", "1.25", "500", "50 s", "1 running", "2 queued"):
        assert part in shown
    # One run of 1:05 min is the mean: 50 s for the running one, then two more.
    assert "3:00 min left" in shown


def test_more_running_runs_than_the_screen_has_lines(tmp_path: Path) -> None:
    text = io.StringIO()
    runs = [a_run(tmp_path, str(number)) for number in range(300)]
    for run in runs:
        write_state(run.run_dir, alive())
    with LiveView(Console(file=text, force_terminal=True, width=120, height=24)) as view:
        view.begin(1000, 0)
        view.tick([Attempt(run, 0) for run in runs], waiting=700)
    lines = text.getvalue().splitlines()
    assert len({line.split()[0] for line in lines if "lr=" in line}) == 20
    assert any("and 280 more that run" in line for line in lines)
    assert any("300 running, 700 queued" in line for line in lines)


def test_the_status_command_reads_a_sweep_from_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    running, gone, done, queued = (a_run(tmp_path, name) for name in "1234")
    write_state(running.run_dir, alive())
    dead = alive()
    dead.pid_started = 1.0  # this process id was given to another process since
    write_state(gone.run_dir, dead)
    write_record(done.run_dir, ended(done, Status.OOM, "Tried"))
    write_state(queued.run_dir, State(state="queued"))
    assert status.main([str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "1 oom, 1 lost, 1 queued, 1 running" in shown
    assert "30/130" in shown
    assert "lr=3" not in shown
    assert status.main([str(tmp_path), "--all"]) == 0
    assert "lr=3" in capsys.readouterr().out
    assert [run.status for run in read_sweep(tmp_path)] == ["running", "lost", "oom", "queued"]


def test_a_directory_without_runs_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([str(tmp_path)]) == 1
    assert "no runs" in capsys.readouterr().err


def test_time_left_is_unknown_until_something_tells() -> None:
    assert sweep_time_left_s([Progress("a", "queued")], parallel=1) is None
    assert sweep_time_left_s([Progress("a", "running", alive())], parallel=1) == 50.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.2, "0 s"), (59.6, "1:00 min"), (7800, "2:10 h")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counts_come_in_a_fixed_order() -> None:
    runs = [Progress("", name) for name in ("queued", "oom", "completed", "oom")]
    assert counts(runs) == "1 completed, 2 oom, 1 queued"
    assert counts([]) == "no runs"
