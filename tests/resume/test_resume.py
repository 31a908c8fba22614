"""An interrupted run goes on in its next attempt, and ends as if nothing had happened (C22)."""

from __future__ import annotations

import pytest
from exit_codes import PREEMPTED, SUPERSEDED
from single_run import MakeRun, Run

from sweeper.record import (
    RECORD_FILE,
    STEPS_FILE,
    State,
    Status,
    read_state,
    write_state,
)

SNAPSHOT_FILE = "snapshot.pt"
EXACT = ("step", "loss", "lr", "grad_norm", "skipped")


def assert_as_uninterrupted(run: Run, whole: Run) -> None:
    record = run.record
    assert record.status is Status.COMPLETED
    for name in EXACT:
        assert run.column(name) == whole.column(name), name
    for name in ("validation_first", "validation_last", "optimizer_steps", "grad_norm_last"):
        assert getattr(record.loss, name) == getattr(whole.record.loss, name), name
    assert record.numerics == whole.record.numerics
    assert not (run.dir / SNAPSHOT_FILE).exists()


@pytest.fixture(scope="module")
def interrupted(make_run: MakeRun) -> Run:
    """Stopped at step 5, then gone on."""
    run = make_run()
    assert run.attempt(0, "0:step5:signal") == [PREEMPTED]
    assert run.stopped_at(0) == [5]
    assert not (run.dir / RECORD_FILE).exists()
    assert run.failures(0) == []
    state = read_state(run.dir)
    assert state is not None
    assert state.state == "queued"
    assert run.attempt(1) == [0]
    return run


def test_a_run_interrupted_at_step_5_ends_as_the_uninterrupted_one(
    interrupted: Run, whole: Run
) -> None:
    run = interrupted
    assert_as_uninterrupted(run, whole)
    record = run.record
    assert record.loss.optimizer_steps == 10
    assert record.attempt == 1
    (earlier,) = record.attempts
    assert earlier["attempt"] == 0
    assert earlier["phase"] == "measure"
    assert earlier["message"] == "preempted at step 5"
    assert record.warnings == []


def test_no_window_reaches_over_the_gap(interrupted: Run) -> None:
    run = interrupted
    # 2 steps of warm-up in each attempt, 3 and 2 measured, the last counts memory.
    measured = ["0", "0", "1", "1", "1", "0", "0", "1", "1", "0"]
    assert run.column("measured") == measured
    time = run.record.time
    assert time.measured_steps == 5
    spent = [float(s) for s, m in zip(run.column("step_time_s"), measured, strict=True) if m == "1"]
    assert time.host_step_time_s is not None
    # The windows' wall time holds their steps, and not the start of a process between them.
    assert sum(spent) <= time.host_step_time_s * 5 < sum(spent) + 0.25
    assert run.record.memory.warm.peak_tensor_bytes is not None


def test_too_few_steps_for_another_window_leave_the_first(make_run: MakeRun, whole: Run) -> None:
    run = make_run()
    assert run.attempt(0, "0:step8:signal") == [PREEMPTED]
    assert run.attempt(1) == [0]
    assert_as_uninterrupted(run, whole)
    assert run.record.time.measured_steps == 6
    assert run.record.warnings == []


@pytest.mark.parametrize(
    ("disturb", "stopped_at"),
    [
        ("0:setup:signal", 0),
        ("0:first:signal", 0),
        ("0:step1:signal", 1),
        ("0:step5:twice,0:save:twice", 5),
    ],
    ids=["set-up", "first evaluation", "warm-up", "twice and again while saving"],
)
def test_wherever_the_signal_arrives(
    disturb: str, stopped_at: int, make_run: MakeRun, whole: Run
) -> None:
    run = make_run()
    assert run.attempt(0, disturb) == [PREEMPTED]
    assert run.stopped_at(0) == [stopped_at]
    assert run.attempt(1) == [0]
    assert_as_uninterrupted(run, whole)


@pytest.mark.parametrize("moment", ["step10", "last"], ids=["memory step", "last evaluation"])
def test_a_run_that_has_done_its_steps_goes_on_to_its_end(
    moment: str, make_run: MakeRun, whole: Run
) -> None:
    run = make_run()
    assert run.attempt(0, f"0:{moment}:signal") == [0]
    assert_as_uninterrupted(run, whole)
    assert run.record.time.measured_steps == 7


def test_a_run_killed_in_its_last_evaluation_after_the_warning_repeats_that_alone(
    make_run: MakeRun, whole: Run
) -> None:
    run = make_run()
    assert run.attempt(0, "0:step10:signal,0:last:kill") == [-9]
    assert run.attempt(1) == [0]
    assert_as_uninterrupted(run, whole)
    assert run.record.time.measured_steps == 7
    assert run.record.memory.parts == whole.record.memory.parts


def test_several_interruptions_and_a_start_that_dies(make_run: MakeRun, whole: Run) -> None:
    run = make_run()
    assert run.attempt(0, "0:step3:signal") == [PREEMPTED]
    assert run.attempt(1, "0:step2:signal") == [PREEMPTED]
    assert run.stopped_at(1) == [5]
    assert run.attempt(2, "0:step2:kill") == [-9]
    assert run.attempt(3) == [0]
    assert_as_uninterrupted(run, whole)
    assert [end["message"] for end in run.record.attempts] == [
        "preempted at step 3",
        "preempted at step 5",
    ]


def test_float16_resumes_with_its_loss_scale(make_run: MakeRun) -> None:
    uninterrupted, run = make_run("precision=amp_fp16"), make_run("precision=amp_fp16")
    uninterrupted.attempt(0)
    assert run.attempt(0, "0:step5:signal") == [PREEMPTED]
    assert run.attempt(1) == [0]
    assert_as_uninterrupted(run, uninterrupted)
    assert run.record.loss.loss_scale == uninterrupted.record.loss.loss_scale


@pytest.mark.parametrize(
    "disturb",
    ["0:step3:signal,1:step5:signal", "1:step3:signal", "1:setup:signal,0:first:signal"],
    ids=["at different steps", "one rank alone", "set-up"],
)
def test_two_ranks_stop_after_the_same_step(
    disturb: str, make_run: MakeRun, whole_of_two: Run
) -> None:
    run = make_run("gpus='2'", "train.steps=24")
    assert run.attempt(0, disturb) == [PREEMPTED, PREEMPTED]
    first, second = run.stopped_at(0)
    assert first == second < 24
    assert run.failures(0) == []
    assert run.attempt(1) == [0, 0]
    assert_as_uninterrupted(run, whole_of_two)


@pytest.fixture(scope="module")
def whole_of_two(make_run: MakeRun) -> Run:
    run = make_run("gpus='2'", "train.steps=24")
    assert run.attempt(0) == [0, 0]
    return run


def test_a_truncated_snapshot_is_refused_and_the_run_starts_again(
    make_run: MakeRun, whole: Run
) -> None:
    run = make_run()
    run.attempt(0, "0:step5:signal")
    path = run.dir / SNAPSHOT_FILE
    path.write_bytes(path.read_bytes()[:-1000])
    assert run.attempt(1) == [0]
    assert_as_uninterrupted(run, whole)
    (warning,) = run.record.warnings
    assert "snapshot.pt is not used, the run starts from the beginning" in warning
    assert "truncated or damaged" in warning


def test_a_snapshot_of_another_configuration_is_refused(make_run: MakeRun) -> None:
    other, run = make_run("seed=1"), make_run()
    other.attempt(0, "0:step5:signal")
    (other.dir / SNAPSHOT_FILE).rename(run.dir / SNAPSHOT_FILE)
    assert run.attempt(0) == [0]
    (warning,) = run.record.warnings
    assert "its config is" in warning


def test_a_full_disk_while_saving_leaves_the_earlier_snapshot(
    make_run: MakeRun, whole: Run
) -> None:
    run = make_run()
    run.attempt(0, "0:step3:signal")
    before = (run.dir / SNAPSHOT_FILE).read_bytes()
    assert run.attempt(1, "0:step3:signal", largest_file_bytes=200_000) == [1]
    (message,) = run.failures(1)
    assert "the snapshot of step 6 cannot be written" in message
    assert "File too large" in message
    assert "the earlier one is intact" in message
    assert run.record.status is Status.FAILED
    assert (run.dir / SNAPSHOT_FILE).read_bytes() == before
    assert not list(run.dir.glob(f".{SNAPSHOT_FILE}.*"))

    (run.dir / RECORD_FILE).unlink()  # as a launcher does that runs it again
    assert run.attempt(2) == [0]
    assert_as_uninterrupted(run, whole)


@pytest.mark.parametrize("disturb", ["0:step5:newer", "0:step5:newer,0:step5:signal"])
def test_a_superseded_attempt_writes_nothing_of_the_run(disturb: str, make_run: MakeRun) -> None:
    run = make_run()
    assert run.attempt(0, disturb) == [SUPERSEDED]
    for name in (RECORD_FILE, STEPS_FILE, SNAPSHOT_FILE):
        assert not (run.dir / name).exists()
    assert run.failures(0) == []


def test_a_superseded_attempt_leaves_the_state_to_the_newer_one(make_run: MakeRun) -> None:
    run = make_run()
    newer = State(state="queued", attempt=1)
    write_state(run.dir, newer)
    assert run.attempt(0) == [SUPERSEDED]
    assert read_state(run.dir) == newer
