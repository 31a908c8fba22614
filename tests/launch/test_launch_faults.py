"""Whatever happens to a run, it gets a record that says so, and the others are not touched."""

from __future__ import annotations

import subprocess

import pytest
from launch_app import Sweep

from sweeper.record import Record, State, Status

FAULTS = ("raise", "oom", "diverge", "exit", "quit", "segv", "kill", "skip")


@pytest.fixture(scope="module")
def ended(shared_sweep: Sweep) -> subprocess.CompletedProcess[str]:
    return shared_sweep(f"do=ok,{','.join(FAULTS)},sleep", "hydra.launcher.exclusive_node=false")


@pytest.fixture(scope="module")
def records(ended: subprocess.CompletedProcess[str], shared_sweep: Sweep) -> dict[str, Record]:
    return {
        variant.split("+")[0].removeprefix("do="): record
        for variant, record in shared_sweep.records().items()
    }


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        ("raise", Status.FAILED, "ValueError", "rank 0 has had enough"),
        ("oom", Status.OOM, "OutOfMemoryError", "Tried to allocate 20.00 MiB"),
        ("diverge", Status.DIVERGED, "DivergedError", "the loss is nan at step 3"),
        ("exit", Status.FAILED, "Exit", "rank 0 exited with code 3"),
        ("quit", Status.FAILED, "NoRecord", "ended without a record"),
        ("segv", Status.FAILED, "SIGSEGV", "rank 0 was ended by SIGSEGV"),
        ("kill", Status.KILLED, "SIGKILL", "rank 0 was ended by SIGKILL"),
        ("skip", Status.SKIPPED, "Skipped", "not today"),
    ],
)
def test_each_end_has_its_status_and_reason(
    records: dict[str, Record], fault: str, status: Status, kind: str, message: str
) -> None:
    record = records[fault]
    assert record.status is status
    assert record.error is not None
    assert record.error.type == kind
    assert message in record.error.message
    assert record.phase == (None if fault == "skip" else "measure")
    assert record.config["do"] == fault


def test_the_other_runs_complete(records: dict[str, Record]) -> None:
    assert records["ok"].status is records["sleep"].status is Status.COMPLETED
    assert len(records) == len(FAULTS) + 2


def test_an_exception_keeps_its_lines(records: dict[str, Record]) -> None:
    error = records["raise"].error
    assert error is not None
    assert error.traceback is not None
    assert 'raise ValueError(f"rank {place.rank} has had enough")' in error.traceback
    assert error.log == "attempt0/rank0.err"
    assert error.log_tail is not None
    assert error.log_tail.count("ValueError: rank 0 has had enough") == 1


def test_a_crash_shows_where_python_was(records: dict[str, Record]) -> None:
    error = records["segv"].error
    assert error is not None
    assert error.log_tail is not None
    assert "in act" in error.log_tail


def test_out_of_memory_says_how_much_was_wanted(records: dict[str, Record]) -> None:
    assert records["oom"].error is not None
    assert records["oom"].error.bytes_requested == 20 * 2**20


def test_the_command_shows_failures_as_they_happen_and_exits_with_1(
    ended: subprocess.CompletedProcess[str],
) -> None:
    assert ended.returncode == 1
    assert "ValueError: rank 0 has had enough" in ended.stdout
    assert "attempt0/rank0.err" in ended.stdout


def test_every_state_is_finished_and_no_process_is_left(
    ended: subprocess.CompletedProcess[str], shared_sweep: Sweep
) -> None:
    states = [state for state in shared_sweep.states().values() if isinstance(state, State)]
    assert [state.state for state in states] == ["finished"] * (len(FAULTS) + 2)
    shared_sweep.assert_nothing_left()


def test_the_command_imports_no_torch_and_composes_each_job_once(
    ended: subprocess.CompletedProcess[str],
) -> None:
    assert f"torch imported: False compositions: {len(FAULTS) + 2}" in ended.stdout


def test_hydra_writes_its_files_into_the_run_directory(
    ended: subprocess.CompletedProcess[str], shared_sweep: Sweep
) -> None:
    for variant, run_dir in shared_sweep.run_dirs().items():
        if not variant.startswith("do=skip"):
            assert (run_dir / ".hydra" / "config.yaml").is_file()
            assert (run_dir / "config.yaml").is_file()
