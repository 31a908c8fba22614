"""A run that is preempted, meets its time limit or loses its node goes on, as the same run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from cluster.slurm_cluster import Cluster
from slurm_sweep import SlurmSweep, wait_until

from sweeper.failure import ENDED_FILE
from sweeper.record import RECORD_FILE, Status, read_record


@pytest.fixture(scope="module")
def limited(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SlurmSweep, subprocess.Popen[str]]]:
    """Two runs that are longer than their limit of one minute, on the way while others are tested.

    One saves itself; the other will not hear of it.
    """
    found = SlurmSweep(cluster, tmp_path_factory.mktemp("limited"))
    process = found.start(
        "do=count,stubborn", "steps=700", "steps_later=710", "seconds=600", "minutes=1",
        "hydra.launcher.constraint=n1",
    )  # fmt: skip
    yield found, process
    process.kill()


def steps(sweep: SlurmSweep, name: str = "count", rank: int = 0) -> list[list[int]]:
    """(attempt, step) of every step that was done."""
    text = (sweep.run_dirs()[name] / f"steps.rank{rank}").read_text()
    return [list(step) for step in json.loads(text)]


@pytest.mark.usefixtures("limited")
def test_a_warned_run_saves_itself_and_goes_on(sweep: SlurmSweep) -> None:
    process = sweep.start(
        "do=count", "others=count", "ranks=2", "steps=60", "hydra.launcher.constraint=n2"
    )
    wait_until(lambda: sweep.run_dirs() and len(sweep.starts("count")) == 2)
    sweep.cluster("scancel", "--signal=USR2", sweep.job("count"))
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    assert "goes on: attempt 1" in output
    record = sweep.records()["count"]
    assert record.status is Status.COMPLETED
    assert record.attempt == 1
    (first,) = record.attempts or [
        {"status": read_record(sweep.run_dirs()["count"] / "attempt0" / ENDED_FILE).status}
    ]
    assert first["status"] == Status.KILLED
    for rank in (0, 1):
        done = steps(sweep, rank=rank)
        assert [step for _, step in done] == list(range(60))  # none twice, none left out
        assert {attempt for attempt, _ in done} == {0, 1}
    assert len(sweep.run_dirs()) == 1


def test_a_more_urgent_job_takes_the_node_and_gives_it_back(sweep: SlurmSweep) -> None:
    process = sweep.start("do=count", "steps=60", "hydra.launcher.constraint=n2")
    sweep.wait_for_start("count")
    sweep.cluster(
        "sbatch", "--partition=urgent", "--exclusive", "--nodelist=n2", "--output=/dev/null",
        "--wrap=sleep 3",
    )  # fmt: skip
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert sweep.records()["count"].attempt >= 1
    assert [step for _, step in steps(sweep)] == list(range(60))
    ended = read_record(sweep.run_dirs()["count"] / "attempt0" / ENDED_FILE)
    assert ended.error is not None
    assert ended.error.message == "saved itself ahead of a preemption"


def test_it_is_not_queued_again_for_ever(sweep: SlurmSweep) -> None:
    process = sweep.start(
        "do=count", "steps=600", "hydra.launcher.max_requeues=0", "hydra.launcher.constraint=n2"
    )
    sweep.wait_for_start("count")
    sweep.cluster("scancel", "--signal=USR2", sweep.job("count"))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    record = sweep.records()["count"]
    assert record.status is Status.KILLED
    assert record.error is not None
    assert record.error.message.startswith("met a preemption after 0 requeues")


def test_a_lost_node_gives_one_record_and_the_lost_attempt_ends_itself(sweep: SlurmSweep) -> None:
    """Two runs on a node that falls silent: one is dead, the other computes on unseen."""
    dead = sweep.start(
        "do=count", "seed=1", "steps=6000", "steps_later=10", "hydra.launcher.constraint=n2"
    )
    unseen = sweep.start(
        "do=count", "seed=2", "steps=6000", "steps_later=80", "+hydra.launcher.sbatch.prefer=n2",
        "hydra.sweep.dir=sweep2",
    )  # fmt: skip
    other = SlurmSweep(sweep.cluster, sweep.cwd)
    other.dir = sweep.cwd / "sweep2"
    try:
        sweep.wait_for_start("count1")
        other.wait_for_start("count2")
        (lost,), (ghost,) = sweep.starts(), other.starts()
        assert lost["host"] == ghost["host"] == "n2"
        sweep.cluster.kill_daemon("n2")
        sweep.cluster.kill_job(lost["SLURM_JOB_ID"])
        wait_until(lambda: len(other.starts()) == 2, 100)
        sweep.cluster.start_node("n2")
        outputs = [process.communicate(timeout=120)[0] for process in (dead, unseen)]
    finally:
        for process in (dead, unseen):
            process.kill()
    assert (dead.returncode, unseen.returncode) == (0, 0), outputs
    for each, name in ((sweep, "count1"), (other, "count2")):
        record = each.records()[name]
        assert (record.status, record.attempt) == (Status.COMPLETED, 1)
        assert {attempt for attempt, _ in steps(each, name)} == {1}
        run_dir = each.run_dirs()[name]
        assert read_record(run_dir / "attempt0" / ENDED_FILE).status is Status.KILLED
        assert not (run_dir / "attempt0" / RECORD_FILE).exists()
        assert not list(run_dir.glob("attempt0/ended.rank*"))
    second = other.starts()[1]
    assert second["host"] == "n1"


def test_a_time_limit_is_a_break_for_some_and_the_end_for_others(
    limited: tuple[SlurmSweep, subprocess.Popen[str]],
) -> None:
    sweep, process = limited
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 1, output
    records = sweep.records()
    assert records["count"].status is Status.COMPLETED
    assert records["count"].attempt >= 1
    assert [step for _, step in steps(sweep)] == list(range(710))
    stubborn = records["stubborn"]
    assert stubborn.status is Status.TIMEOUT
    assert stubborn.error is not None
    assert stubborn.error.message == "time limit of 1 min"
    assert "in act" in str(stubborn.error.traceback)  # the Python stack at that moment
