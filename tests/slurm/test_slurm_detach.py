"""The command may go away: the jobs do not, and the same command collects what they left."""

from __future__ import annotations

import subprocess
import sys

from slurm_sweep import SlurmSweep, wait_until

from sweeper.failure import ENDED_FILE
from sweeper.record import Status, read_record


def status(sweep: SlurmSweep) -> str:
    import os

    return subprocess.run(
        [sys.executable, "-m", "sweeper.status", str(sweep.dir)],
        env={**os.environ, **sweep.cluster.environment, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_a_detached_sweep_is_seen_from_elsewhere_and_collected(sweep: SlurmSweep) -> None:
    arguments = ("do=sleep,raise", "seconds=12", "hydra.launcher.max_parallel=1")
    done = sweep(*arguments, "hydra.launcher.detach=true", timeout_s=30)
    assert done.returncode == 0, done.stdout
    assert f"python -m sweeper.status {sweep.dir}" in done.stdout
    assert not sweep.records()
    sweep.wait_for_start("sleep")
    shown = status(sweep)
    assert "do=sleep+ranks=1+seed=0" in shown
    assert "running" in shown
    assert sweep.job("raise") in shown  # waits, as the element that it is
    assert "JobArrayTaskLimit" in shown
    done = sweep(*arguments)
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("is still running; following it") == 2
    records = sweep.records()
    assert records["sleep"].status is Status.COMPLETED
    assert records["raise"].status is Status.FAILED
    assert len(sweep.starts()) == 2
    assert not (sweep.dir / ".slurm").exists()


def test_jobs_outlive_a_killed_command(sweep: SlurmSweep) -> None:
    arguments = ("do=sleep", "seconds=12", "seed=1,2", "hydra.launcher.max_parallel=1")
    process = sweep.start(*arguments)
    sweep.wait_for_start("sleep1")
    process.kill()
    process.communicate()
    # The second never gets to run; nobody is there to see it.
    sweep.cluster("scancel", sweep.job("sleep2"))
    wait_until(lambda: sweep.records(), 60)
    done = sweep(*arguments)
    assert done.returncode == 0, done.stdout
    records = sweep.records()
    assert records["sleep1"].attempt == records["sleep2"].attempt == 0
    assert [record.status for record in records.values()] == [Status.COMPLETED] * 2
    assert len(sweep.starts()) == 2


def test_a_run_that_hangs_while_nobody_follows_ends_itself(sweep: SlurmSweep) -> None:
    arguments = (
        "do=sleep", "others=sleep", "seconds=600", "ranks=2",
        "hydra.launcher.hang_timeout_min=0.05",
    )  # fmt: skip
    done = sweep(*arguments, "hydra.launcher.detach=true", timeout_s=30)
    assert done.returncode == 0, done.stdout
    sweep.wait_for_start("sleep")
    wait_until(lambda: not sweep.cluster("squeue", "-h"), 60)
    # The next command puts it on record, and starts it again, as it does with what has failed.
    done = sweep(*arguments, "hydra.launcher.detach=true", timeout_s=30)
    assert done.returncode == 0, done.stdout
    sweep.cluster("scancel", "--user=root")
    ended = read_record(sweep.run_dirs()["sleep"] / "attempt0" / ENDED_FILE)
    assert ended.status is Status.TIMEOUT
    assert ended.error is not None
    assert ended.error.message == "no new step or phase for 0.05 min"
    assert "rank 1:" in (ended.error.traceback or "")  # where each rank was
