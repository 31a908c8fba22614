"""Stopping a sweep, losing its command, and continuing it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from launch_app import Sweep, wait_until

from sweeper.failure import ENDED_FILE
from sweeper.record import RECORD_FILE, Status, read_record

TWO_AT_A_TIME = ("hydra.launcher.exclusive_node=false", "hydra.launcher.max_parallel=2")


def test_ctrl_c_cancels_what_runs_and_the_same_command_continues(sweep: Sweep) -> None:
    arguments = ("-m", "do=sleep", "seconds=600", "seed=1,2,3,4,5", *TWO_AT_A_TIME)
    process = sweep.start(*arguments)
    wait_until(lambda: len(sweep.starts()) == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 130, output
    sweep.assert_nothing_left()
    assert [record.status for record in sweep.records().values()] == [Status.CANCELLED] * 2
    states = [state.state for state in sweep.states().values() if state is not None]
    assert sorted(states) == ["finished", "finished", "queued", "queued", "queued"]
    assert len(sweep.starts()) == 2


def test_ctrl_c_twice_does_not_wait(sweep: Sweep) -> None:
    process = sweep.start("do=stubborn")
    wait_until(lambda: len(sweep.starts()) == 1)
    time.sleep(0.5)  # for it to have set its handlers
    process.send_signal(signal.SIGINT)
    time.sleep(0.6)  # one signal, not a repeated one
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 130, output
    sweep.assert_nothing_left()
    assert next(iter(sweep.records().values())).status is Status.CANCELLED


def test_only_what_did_not_complete_is_run_again(sweep: Sweep) -> None:
    assert sweep("-m", "do=ok,raise,exit", *TWO_AT_A_TIME).returncode == 1
    kept = sweep.run_dirs()["do=ok+seed=0+ranks=1"] / RECORD_FILE
    before = kept.stat().st_mtime_ns
    done = sweep("-m", "do=ok,raise,exit", *TWO_AT_A_TIME)
    assert done.returncode == 1
    assert kept.stat().st_mtime_ns == before
    assert len(sweep.starts()) == 5
    again = sweep.records()["do=raise+seed=0+ranks=1"]
    assert again.attempt == 1
    (first,) = again.attempts
    assert (first["attempt"], first["status"], first["error"]) == (0, "failed", "ValueError")
    # With rerun=none the records of failures stand, too.
    assert sweep("-m", "do=ok,raise,exit", "rerun=none", *TWO_AT_A_TIME).returncode == 1
    assert len(sweep.starts()) == 5


def test_runs_outlive_the_command_and_the_next_one_adopts_them(sweep: Sweep) -> None:
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1"}
    arguments = ("-m", "do=wait", "seed=1,2,3")
    first = sweep.start(*arguments, **gpus)
    wait_until(lambda: len(sweep.starts()) == 2)
    first.kill()
    first.communicate()
    second = sweep.start(*arguments, **gpus)
    assert second.stdout is not None
    lines = [second.stdout.readline() for _ in range(3)]
    assert sum("is still running; following it" in line for line in lines) == 2, lines
    (sweep.cwd / "go").touch()
    output, _ = second.communicate(timeout=60)
    assert second.returncode == 0, output
    assert len(sweep.starts()) == 3
    assert [record.status for record in sweep.records().values()] == [Status.COMPLETED] * 3
    # The third had to wait for a GPU of the adopted ones, and got that one.
    records = {variant[8:14]: record for variant, record in sweep.records().items()}
    begun = _note(sweep, "do=wait+seed=3+ranks=1", "started_at")
    assert min(records[f"seed={n}"].finished_at or "" for n in (1, 2)) < begun
    tokens = [records[f"seed={n}"].hardware.visible_devices for n in (1, 2)]
    assert tokens == ["0", "1"]
    sweep.assert_nothing_left()


def test_a_run_that_died_with_its_command_is_recorded_and_run_again(sweep: Sweep) -> None:
    process = sweep.start("do=wait", "ranks=2", "others=wait")
    wait_until(lambda: len(sweep.starts()) == 2)
    process.kill()
    process.communicate()
    ranks = {start["pid"] for start in sweep.starts()}
    for found in sweep.processes():
        if found.pid in ranks:
            found.kill()
    sweep.assert_nothing_left()
    (sweep.cwd / "go").touch()
    done = sweep("do=wait", "ranks=2", "others=wait")
    assert done.returncode == 0, done.stdout
    (run_dir,) = sweep.run_dirs().values()
    assert read_record(run_dir / RECORD_FILE).attempt == 1
    lost = read_record(run_dir / "attempt0" / ENDED_FILE)
    assert lost.status is Status.KILLED
    assert lost.error is not None
    assert lost.error.signal == "SIGKILL"


def _note(sweep: Sweep, variant: str, key: str) -> str:
    notes = json.loads((sweep.run_dirs()[variant] / "attempt0" / "ranks.json").read_text())
    return str(notes[key])


def test_two_commands_on_one_sweep_are_refused(sweep: Sweep) -> None:
    first = sweep.start("do=sleep", "seconds=600")
    wait_until(lambda: len(sweep.starts()) == 1)
    second = sweep("do=sleep", "seconds=600")
    assert second.returncode == 2
    assert f"another command works on {sweep.dir} (process {first.pid}" in second.stdout
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=15)
    assert len(sweep.starts()) == 1
    sweep.assert_nothing_left()


def test_the_sweep_survives_the_process_that_starts_its_ranks(sweep: Sweep) -> None:
    process = sweep.start("-m", "do=wait", "seed=1,2,3", *TWO_AT_A_TIME)
    wait_until(lambda: len(sweep.starts()) == 2)
    ranks = {start["pid"] for start in sweep.starts()}
    (supervisor,) = [p for p in sweep.processes() if p.pid not in {process.pid, *ranks}]
    supervisor.kill()
    supervisor.wait(10)
    (sweep.cwd / "go").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert output.count("the rest starts cold") == 1
    assert [record.status for record in sweep.records().values()] == [Status.COMPLETED] * 3
    assert len(sweep.starts()) == 3


def test_a_wrong_cell_starts_nothing(sweep: Sweep) -> None:
    done = sweep("-m", "do=ok,wrong")
    assert done.returncode == 2
    assert "do: wrong is wrong\n  -> use do=ok" in done.stdout
    assert not sweep.run_dirs()
    sweep.assert_nothing_left()


def test_jobs_that_are_the_same_run_start_it_once(sweep: Sweep) -> None:
    assert sweep("-m", "do=ok", "seed=1,2,1").returncode == 0
    assert len(sweep.starts()) == 2


def test_a_run_directory_that_cannot_be_made_is_one_message(sweep: Sweep) -> None:
    done = sweep("-m", "seed=1,2", "hydra.sweep.dir=/dev/null/x")
    assert done.returncode == 2
    assert "hydra.sweep.dir: /dev/null/x cannot be written" in done.stdout
    assert not list(Path(sweep.cwd).rglob(RECORD_FILE))
