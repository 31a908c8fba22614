"""Every run gets what its own config asks for, and a request that cannot be met is reported."""

from __future__ import annotations

import itertools
import re

import pytest
from slurm_sweep import TRAIN, SlurmSweep

from sweeper.record import Status, read_record

SMALL = (
    "train.steps=6",
    "measure.warmup_steps=2",
    "measure.steps=2",
    "batch.size=8",
    "evaluate.samples=16",
    "tracker=none",
)


def test_runs_of_1_4_and_8_gpus_are_three_arrays_on_devices_of_their_own(
    sweep: SlurmSweep,
) -> None:
    done = sweep("do=meet", "meet=13", "others=meet", "ranks=1,4,8")  # all at the same time
    assert done.returncode == 0, done.stdout
    assert [r.status for r in map(read_record, sweep.dir.glob("*/record.json"))] == [
        Status.COMPLETED
    ] * 3
    starts = sweep.starts()
    assert sorted(start["world_size"] for start in starts) == [1, *[4] * 4, *[8] * 8]
    devices: dict[str, tuple[str, set[str]]] = {
        start["SLURM_JOB_ID"]: (start["host"], set(start["CUDA_VISIBLE_DEVICES"].split(",")))
        for start in starts
    }
    assert sorted(len(tokens) for _, tokens in devices.values()) == [1, 4, 8]
    # Each local rank chooses one of the devices that its job was given.
    for start in starts:
        assert start["local_rank"] < len(devices[start["SLURM_JOB_ID"]][1])
    for host in ("n1", "n2"):
        held = [token for where, tokens in devices.values() for token in tokens if where == host]
        assert len(held) == len(set(held))
    assert len(_arrays(sweep)) == 3


def _arrays(sweep: SlurmSweep) -> dict[str, list[int]]:
    """The number of ranks of each run of each array job."""
    found: dict[str, list[int]] = {}
    for start in sweep.starts():
        if start["rank"] == 0:
            # An array of one element is a plain job.
            array = start["SLURM_ARRAY_JOB_ID"] or start["SLURM_JOB_ID"]
            found.setdefault(array, []).append(start["world_size"])
    return found


def test_a_grid_of_12_is_one_array_for_each_number_of_gpus(sweep: SlurmSweep) -> None:
    done = sweep("do=ok", "seed=0,1,2,3", "ranks=1,4,8")
    assert done.returncode == 0, done.stdout
    arrays = _arrays(sweep)
    assert sorted(arrays.values()) == [[1] * 4, [4] * 4, [8] * 4]


def test_elements_of_an_array_run_at_most_so_many_at_a_time(sweep: SlurmSweep) -> None:
    done = sweep(
        "do=sleep", "seconds=1", "seed=1,2,3", "hydra.launcher.max_parallel=1",
        "+hydra.launcher.env.MINE=yes", "hydra.launcher.cpus_per_task=2",
        "hydra.launcher.constraint=n2", "+hydra.launcher.sbatch.comment=hello",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    spans = sorted(
        (start["at"], start["at"] + 1.0, start["host"], start["MINE"], start["OMP_NUM_THREADS"])
        for start in sweep.starts()
    )
    assert all(end <= after[0] for (_, end, *_), after in itertools.pairwise(spans))
    assert {span[2:] for span in spans} == {("n2", "yes", "2")}
    job = sweep.starts()[0]["SLURM_JOB_ID"]
    assert re.search(r"\bComment=hello\b", sweep.cluster("scontrol", "show", "job", job))


def test_more_gpus_than_a_node_has_span_nodes_and_train_the_same(sweep: SlurmSweep) -> None:
    """Four ranks, two on each of two nodes, against one rank: the same batch, the same losses."""
    done = sweep(
        "-m", "hydra/launcher=slurm", "gpus=1,4", "hydra.launcher.gpus_per_node_max=2",
        "sweep.name=two", "hydra.launcher.order=given", *SMALL, program=TRAIN,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    paths = (sweep.cwd / "sweeps" / "two").glob("*/record.json")
    records = {record.hardware.world_size: record for record in map(read_record, paths)}
    assert records[4].hardware.hosts == ["n1", "n2"]
    assert records[4].hardware.nodes in (None, 2)
    first, last = records[1].loss, records[4].loss
    assert last.train_last == pytest.approx(first.train_last, rel=1e-4)
    assert last.validation_last == pytest.approx(first.validation_last, rel=1e-4)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("partition=nowhere", "the cluster has no partition nowhere, only closed, main, urgent"),
        ("nodes=3", "needs 3 nodes with 1 GPUs and 1 CPUs, partition main has 2"),
        ("+sbatch.gres=quantum:1", "sbatch refuses it: Invalid generic resource"),
    ],
)
def test_what_the_cluster_can_never_give_is_said_at_once(
    sweep: SlurmSweep, option: str, reason: str
) -> None:
    plus = "+" if option.startswith("+") else ""
    done = sweep("do=ok", f"{plus}hydra.launcher.{option.lstrip('+')}", timeout_s=60)
    record = sweep.records()["ok"]
    assert record.status is Status.SKIPPED, done.stdout
    assert record.error is not None
    assert reason in record.error.message
    assert not sweep.starts()
    assert not sweep.cluster("squeue", "-h")


def test_a_job_that_slurm_keeps_pending_for_ever_is_taken_back(sweep: SlurmSweep) -> None:
    # sbatch accepts it, and Slurm gives it one of these two reasons.
    done = sweep("do=ok", "+hydra.launcher.sbatch.nodes=3")
    record = sweep.records()["ok"]
    assert record.status is Status.SKIPPED, done.stdout
    assert record.error is not None
    assert re.fullmatch(
        "Slurm can never start it: Partition(NodeLimit|Config)", record.error.message
    )
    assert not sweep.cluster("squeue", "-h")
