"""Whatever happens to a job, its run gets a record that says so, and nothing waits for the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from cluster.slurm_cluster import Cluster
from slurm_sweep import SlurmSweep, wait_until

from sweeper.record import Record, Status

FAULTS = ("raise", "exit", "kill", "segv")


@pytest.fixture(scope="module")
def ended(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SlurmSweep, dict[str, float], subprocess.CompletedProcess[str]]]:
    """One array with every fault in it, with a job that is cancelled and one that must wait."""
    sweep = SlurmSweep(cluster, tmp_path_factory.mktemp("faults"))
    done_at: dict[str, float] = {}
    # One run needs all of n1's and n2's GPUs in turn, so that the last element of its array waits.
    process = sweep.start(f"do=ok,{','.join(FAULTS)},sleep", "seconds=600")
    try:
        sweep.wait_for_start("sleep")
        cluster("scancel", sweep.job("sleep"))
        done_at["scancel"] = time.monotonic()
        output, _ = process.communicate(timeout=100)
        done_at["end"] = time.monotonic()
        yield sweep, done_at, subprocess.CompletedProcess(process.args, process.returncode, output)
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        ("raise", Status.FAILED, "ValueError", "rank 0 has had enough"),
        ("exit", Status.FAILED, "Exit", "rank 0 exited with code 3"),
        ("kill", Status.KILLED, "SIGKILL", "rank 0 was ended by SIGKILL"),
        ("segv", Status.FAILED, "SIGSEGV", "rank 0 was ended by SIGSEGV"),
        ("sleep", Status.CANCELLED, "Cancelled", "cancelled"),
    ],
)
def test_each_end_has_its_status_and_reason(
    ended: tuple[SlurmSweep, object, object], fault: str, status: Status, kind: str, message: str
) -> None:
    record: Record = ended[0].records()[fault]
    assert record.status is status
    assert record.error is not None
    assert record.error.type == kind
    assert message in record.error.message
    assert record.phase == "measure"
    assert record.started_at is not None


def test_the_other_runs_complete_and_the_command_ends(
    ended: tuple[SlurmSweep, dict[str, float], subprocess.CompletedProcess[str]],
) -> None:
    sweep, at, done = ended
    assert sweep.records()["ok"].status is Status.COMPLETED
    assert done.returncode == 1
    assert at["end"] - at["scancel"] < 60


def test_a_crash_has_its_log(ended: tuple[SlurmSweep, object, object]) -> None:
    error = ended[0].records()["raise"].error
    assert error is not None
    assert error.log == "attempt0/rank0.err"
    assert "ValueError: rank 0 has had enough" in str(error.log_tail)
    assert 'raise ValueError(f"rank {place.rank} has had enough")' in str(error.traceback)


def test_an_array_element_cancelled_while_it_waits_is_not_waited_for(sweep: SlurmSweep) -> None:
    process = sweep.start("do=sleep", "seconds=12", "seed=1,2", "hydra.launcher.max_parallel=1")
    sweep.wait_for_start("sleep1")
    sweep.cluster("scancel", sweep.job("sleep2"))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    records = sweep.records()
    assert records["sleep1"].status is Status.COMPLETED
    assert records["sleep2"].status is Status.CANCELLED
    assert not (sweep.run_dirs()["sleep2"] / "attempt0").exists()


def test_one_rank_ends_and_the_others_follow(sweep: SlurmSweep) -> None:
    """Rank 1, on the second node, is killed while rank 0 waits for it."""
    begun = time.monotonic()
    done = sweep(
        "do=kill", "rank=1", "others=sleep", "seconds=600", "ranks=2",
        "hydra.launcher.gpus_per_node_max=1",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    record = sweep.records()["kill"]
    assert record.status is Status.KILLED
    assert record.error is not None
    assert (record.error.rank, record.error.type) == (1, "SIGKILL")
    assert time.monotonic() - begun < 90
    assert {start["host"] for start in sweep.starts()} == {"n1", "n2"}
    wait_until(lambda: not any(_alive(int(start["pid"])) for start in sweep.starts()), 15)


def test_ctrl_c_cancels_the_jobs_and_the_same_command_continues(sweep: SlurmSweep) -> None:
    arguments = ("do=sleep", "seconds=3", "seed=1,2", "hydra.launcher.max_parallel=1")
    process = sweep.start(*arguments)
    sweep.wait_for_start("sleep1")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130, output
    assert sweep.records()["sleep1"].status is Status.CANCELLED
    assert sweep.state("sleep2").state == "queued"
    wait_until(lambda: not sweep.cluster("squeue", "-h"), 15)
    done = sweep(*arguments)
    assert done.returncode == 0, done.stdout
    records = sweep.records()
    assert [record.status for record in records.values()] == [Status.COMPLETED] * 2
    assert records["sleep1"].attempt == 1
    assert records["sleep2"].attempt == 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
