"""From the ends of ranks to a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from sweeper.failure import write_failure
from sweeper.launch import oom
from sweeper.launch.attempt import Attempt, next_attempt, write_plan
from sweeper.launch.finish import finish, verdict
from sweeper.launch.oom import OomWatch
from sweeper.launch.runs import Resources, Run
from sweeper.record import (
    RECORD_FILE,
    Failure,
    Identity,
    Record,
    State,
    Status,
    read_record,
    read_state,
    write_record,
    write_state,
)

WHO = Identity(sweep="s", run_id="r", config_id="c")


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    run = Run(
        identity=WHO,
        config=OmegaConf.create(),
        run_dir=tmp_path / "run",
        plain={"lr": 0.1, "ckpt": "on"},
        resources=Resources(gpus=2, timeout_min=5.0),
    )
    found = next_attempt(run)
    write_plan(found)
    found.dir.mkdir()
    return found


def end(
    rank: int, code: int | None, at: str = "2025-01-01T00:00:05", **more: Any
) -> dict[str, Any]:
    return {"rank": rank, "code": code, "at": at, "sent": False, "oom": False, **more}


def test_the_kernels_killer_is_told_from_any_other(attempt: Attempt) -> None:
    status, failure = verdict(attempt, "rank", [end(1, -9, oom=True), end(0, -15, sent=True)])
    assert status is Status.OOM
    assert failure is not None
    assert failure.message == "rank 1 was ended by the kernel, out of memory"
    status, _ = verdict(attempt, "rank", [end(1, -9), end(0, -15, sent=True)])
    assert status is Status.KILLED


def test_an_error_before_a_signal_is_the_reason(attempt: Attempt) -> None:
    write_failure(attempt.dir, Failure(type="KeyError", message="'a'", rank=0, at="2025-01-01"))
    status, failure = verdict(attempt, "rank", [end(0, 1), end(1, -6, at="2025-01-02")])
    assert status is Status.FAILED
    assert failure is not None
    assert failure.type == "KeyError"


def test_a_rank_that_could_not_be_started_is_said_to_be_so(attempt: Attempt) -> None:
    status, failure = verdict(attempt, "rank", [end(1, 121), end(0, -9, sent=True)])
    assert status is Status.FAILED
    assert failure is not None
    assert failure.message == "rank 1 could not be started"


def test_nobody_saw_the_end(attempt: Attempt) -> None:
    assert verdict(attempt, "lost", [end(0, None), end(1, None)])[0] is Status.KILLED


def test_cancelled_and_timeout_need_no_exit_code(attempt: Attempt) -> None:
    assert verdict(attempt, "cancelled", [])[0] is Status.CANCELLED
    status, failure = verdict(attempt, "timeout", [])
    assert status is Status.TIMEOUT
    assert failure is not None
    assert failure.message == "time limit of 5 min"


def test_the_record_holds_config_phase_and_ranks(attempt: Attempt) -> None:
    write_state(attempt.run.run_dir, State(state="running", phase="warmup", step=3))
    record = finish(attempt, "rank", [end(1, -11)])
    assert record == read_record(attempt.run.run_dir / RECORD_FILE)
    assert record.config == {"lr": 0.1, "ckpt": "on"}
    assert (record.phase, record.hardware.world_size) == ("warmup", 2)
    state = read_state(attempt.run.run_dir)
    assert state is not None
    assert (state.state, state.step) == ("finished", 3)


def test_a_final_record_is_never_replaced(attempt: Attempt) -> None:
    own = Record(identity=WHO, status=Status.COMPLETED)
    write_record(attempt.run.run_dir, own)
    assert finish(attempt, "rank", [end(0, -9)]).status is Status.COMPLETED


def test_a_broken_record_stays_and_is_reported(attempt: Attempt) -> None:
    path = attempt.run.run_dir / RECORD_FILE
    path.write_text('{"schema_version": 1')
    record = finish(attempt, "exited", [end(0, 0), end(1, 0)])
    assert record.status is Status.FAILED
    assert record.error is not None
    assert "not readable" in record.error.message
    assert path.read_text() == '{"schema_version": 1'


def test_runs_that_started_beside_it_are_listed(attempt: Attempt) -> None:
    attempt.neighbours = ["a"]
    attempt.place().neighbours_file.write_text("b\na\n")
    assert finish(attempt, "cancelled", []).hardware.shares_node_with == ["a", "b"]


def test_the_frozen_config_reads_back_as_it_was(attempt: Attempt) -> None:
    assert OmegaConf.load(attempt.run.run_dir / "config.yaml") == {"lr": 0.1, "ckpt": "on"}


def test_each_kill_of_the_kernel_is_credited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 2\noom_kill 1\n")
    monkeypatch.setattr(oom, "_own_group", lambda root, name: tmp_path if not name else None)
    watch = OomWatch()
    assert not watch.was_it()
    events.write_text("oom 3\noom_kill 2\n")
    assert watch.was_it()
    assert not watch.was_it()
