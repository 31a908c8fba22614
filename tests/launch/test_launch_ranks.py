"""Ranks of a run start and end together."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from launch_app import Sweep

from sweeper.record import Status


def test_two_runs_of_two_ranks_are_four_processes_and_two_records(sweep: Sweep) -> None:
    done = sweep("ranks=2", "do=ok", "seed=1,2", "-m", MASTER_PORT="29500", RANK="7")
    assert done.returncode == 0, done.stdout
    assert len(sweep.run_dirs()) == 2
    assert [record.status for record in sweep.records().values()] == [Status.COMPLETED] * 2
    starts = sweep.starts()
    assert len({start["pid"] for start in starts}) == 4
    for run_dir in sweep.run_dirs().values():
        assert (run_dir / ".hydra" / "overrides.yaml").is_file()
        assert len(list(run_dir.rglob("config.yaml"))) == 2  # ours and Hydra's
        assert "rank 1 of" in (run_dir / "attempt0" / "rank1.out").read_text()
    sweep.assert_nothing_left()


@pytest.fixture(scope="module")
def lost(shared_sweep: Sweep) -> Sweep:
    """Rank 1 fails in five ways; rank 0 sleeps, or complains that its peer has gone."""
    common = ["-m", "ranks=2", "rank=1", "hydra.launcher.exclusive_node=false"]
    shared_sweep(*common, "hydra.launcher.cpus_per_task=1", "others=peer", "do=oom,kill")
    shared_sweep(
        *common, "hydra.launcher.cpus_per_task=1", "others=sleep", "seconds=600", "do=raise,exit"
    )
    return shared_sweep


@pytest.mark.parametrize(
    ("variant", "status", "kind"),
    [
        ("do=oom+seed=0+ranks=2", Status.OOM, "OutOfMemoryError"),
        ("do=kill+seed=0+ranks=2", Status.KILLED, "SIGKILL"),
        ("do=raise+seed=0+ranks=2", Status.FAILED, "ValueError"),
        ("do=exit+seed=0+ranks=2", Status.FAILED, "Exit"),
    ],
)
def test_the_rank_that_began_it_is_named(
    lost: Sweep, variant: str, status: Status, kind: str
) -> None:
    record = lost.records()[variant]
    assert record.status is status
    assert record.error is not None
    assert record.error.type == kind
    assert record.error.rank == 1
    assert record.error.log == str(Path("attempt0") / "rank1.err")


def test_the_surviving_rank_is_ended(lost: Sweep) -> None:
    assert len(lost.starts()) == 8
    lost.assert_nothing_left()


def test_a_run_ends_at_its_time_limit_with_all_it_started(sweep: Sweep) -> None:
    done = sweep("do=stubborn", "hydra.launcher.timeout_min=0.03")
    assert done.returncode == 1
    record = sweep.records()["do=stubborn+seed=0+ranks=1"]
    assert record.status is Status.TIMEOUT
    assert record.error is not None
    assert record.error.message == "time limit of 0.03 min"
    assert record.error.traceback is not None
    assert "in act" in record.error.traceback  # the Python stack at that moment
    sweep.assert_nothing_left()


def test_a_run_that_makes_no_step_for_too_long_is_ended(sweep: Sweep) -> None:
    sweep("do=sleep", "seconds=600", "hydra.launcher.hang_timeout_min=0.03")
    record = sweep.records()["do=sleep+seed=0+ranks=1"]
    assert record.status is Status.TIMEOUT
    assert record.error is not None
    assert record.error.message == "no new step or phase for 0.03 min"
    assert record.error.traceback is not None
    assert "in act" in record.error.traceback


def test_one_run_at_a_time_means_that_no_two_overlap(sweep: Sweep) -> None:
    arguments = ("-m", "do=sleep,raise", "seconds=0.2", "seed=1,2,3")
    done = sweep(*arguments, "hydra.launcher.exclusive_node=true", "hydra.launcher.warm=false")
    spans = []
    for run_dir in sweep.run_dirs().values():
        begun = json.loads((run_dir / "attempt0" / "ranks.json").read_text())["started_at"]
        (end,) = json.loads((run_dir / "attempt0" / "exits.json").read_text())["exits"]
        spans.append((begun, end["at"]))
    spans.sort()
    assert len(spans) == 6
    for (_, end), (begun, _) in pairwise(spans):
        assert end <= begun
    # And each has been recorded, and told of, before the next one starts.
    words = [line.split()[0] for line in done.stdout.splitlines() if " do=" in line]
    assert words == ["started", "completed"] * 3 + ["started", "failed"] * 3
