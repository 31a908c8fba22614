"""Reading what Slurm's commands print; no Slurm is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sweeper.errors import UserError
from sweeper.launch import slurm_groups
from sweeper.launch.attempt import Attempt
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Resources, Run
from sweeper.launch.slurm_cluster import SlurmCluster, minutes
from sweeper.launch.slurm_groups import Element
from sweeper.launch.slurm_note import SlurmNote
from sweeper.launch.slurm_request import group_key, parameters, spread
from sweeper.launch.slurm_states import JobState, parse_sacct, parse_squeue
from sweeper.launch.slurm_task import SlurmTask
from sweeper.record import Identity

SINFO = """\
cpu*|40|64|256000|(null)|1-00:00:00|up|intel
gpu|10|128|1000000|gpu:a100:8(S:0-7)|2:00:00|up|a100,nvlink
gpu|2|64|500000|gpu:h100:4,gpu:v100:2|2:00:00|up|(null)
old|4|16|64000|gpu:2|infinite|down|(null)
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [("1-02:03:30", 1563.5), ("02:00:00", 120.0), ("05:00", 5.0), ("infinite", None)],
)
def test_minutes(text: str, value: float | None) -> None:
    assert minutes(text) == value


@pytest.mark.parametrize(
    ("need", "cluster", "reason"),
    [
        ({"gpus": 0}, {}, None),
        ({"gpus": 8, "nodes": 10}, {"partition": "gpu"}, None),
        ({"gpus": 8, "nodes": 11}, {"partition": "gpu"}, "needs 11 nodes with 8 GPUs"),
        ({"gpus": 6, "nodes": 12}, {"partition": "gpu"}, None),
        ({"gpus": 6, "nodes": 3}, {"partition": "gpu", "constraint": "nvlink&a100"}, None),
        ({"gpus": 1}, {"partition": "gpu", "constraint": "b200"}, "no node with the features b200"),
        # An expression that only Slurm understands is left to Slurm.
        ({"gpus": 1}, {"partition": "gpu", "constraint": "[a100|h100]"}, None),
        ({"gpus": 1}, {}, "partition cpu has 0"),
        ({"gpus": 1}, {"partition": "old"}, "partition old is down"),
        ({"gpus": 1}, {"partition": "cpu,gpu"}, None),
        ({"gpus": 1}, {"partition": "cpu,fpga"}, "no partition cpu,fpga"),
        ({"gpus": 1, "timeout_min": 121}, {"partition": "gpu"}, "needs 121 min"),
        ({"gpus": 0, "cpus_per_task": 65}, {}, "65 CPUs, partition cpu has 0"),
        ({"gpus": 1}, {"partition": "gpu", "mem_gib": 900}, None),
        ({"gpus": 1}, {"partition": "gpu", "mem_gib": 1000}, "1000 GiB, partition gpu has 0"),
    ],
)
def test_a_request_that_can_never_be_met(
    need: dict[str, int], cluster: dict[str, object], reason: str | None
) -> None:
    found = SlurmCluster.parse(SINFO).why_never(Resources(cluster=cluster, **need))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("gpus", "per_node", "shape"),
    [(16, 8, (2, 8)), (12, 8, (2, 6)), (9, 8, (3, 3)), (8, 8, (1, 8)), (1, 8, (1, 1))],
)
def test_gpus_spread_evenly_over_nodes(gpus: int, per_node: int, shape: tuple[int, int]) -> None:
    found = spread(Resources(gpus=gpus), per_node)
    assert (found.nodes, found.gpus) == shape
    assert found.world_size == gpus


def test_the_most_gpus_of_a_node_count_all_kinds() -> None:
    cluster = SlurmCluster.parse(SINFO)
    assert cluster.gpus_per_node(Resources(cluster={"partition": "gpu"})) == 8
    assert [nodes.gpus for nodes in cluster.nodes] == [0, 8, 6, 2]


def test_what_is_asked_of_sbatch() -> None:
    need = Resources(
        gpus=8,
        nodes=2,
        cpus_per_task=4,
        timeout_min=0.5,
        cluster={"mem_gib": 1.5, "signal_s": 60, "sbatch": {"mail_user": "me", "exclusive": True}},
    )
    asked = parameters(need)
    assert asked["ntasks_per_node"] == asked["gpus_per_node"] == 8
    assert asked["additional_parameters"] == {
        "requeue": True,
        "mem": "1536M",
        "time": 1,
        "signal": "USR2@15",  # a quarter of the time, if more is asked for
        "mail-user": "me",
        "exclusive": True,
    }
    assert "--cpus-per-task=4" in asked["srun_args"]
    other = Resources(gpus=8, nodes=2, cpus_per_task=4, timeout_min=0.5, cluster=need.cluster)
    assert group_key(need) == group_key(other)
    assert group_key(need) != group_key(Resources(gpus=8, nodes=2, cpus_per_task=4))


def test_states_are_read_as_slurm_writes_them() -> None:
    listed = parse_squeue(
        "7_0|RUNNING|None|n[1-2]\n7_1|PENDING|PartitionNodeLimit|\n"
        "8|PENDING|launch failed requeued held|\n"
    )
    assert listed["7_0"] == JobState("RUNNING", "None", "n[1-2]")
    assert not listed["7_0"].never
    assert listed["7_1"].never
    assert listed["8"].never
    ended = parse_sacct("7_0|CANCELLED by 1000|n1\n9|NODE_FAIL|n2\n9|COMPLETED|n1\n")
    assert ended["7_0"].is_over
    assert ended["7_0"].state == "CANCELLED"
    assert ended["9"].state == "COMPLETED"


def an_element(run_dir: Path) -> Element:
    run_dir.mkdir()
    identity = Identity(sweep="s", run_id=run_dir.name, config_id="c")
    run = Run(identity=identity, config=PackedConfig(OmegaConf.create()), run_dir=run_dir)
    task = SlurmTask(
        run_dir=run_dir, submission="", base=0, folder=run_dir, ranks_per_node=1,
        cwd="/", argv=(), sys_path=(),
    )  # fmt: skip
    return Element(Attempt(run, 0), task, print)


@pytest.mark.parametrize(
    ("answers", "submitted"),
    [
        (["Socket timed out on send/recv operation", None], 2),
        (["Invalid partition name specified"], 1),
        (["Unable to contact slurm controller (connect failure)"] * 4, 4),
    ],
)
def test_a_controller_that_does_not_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str | None], submitted: int
) -> None:
    monkeypatch.setattr(slurm_groups, "RETRY_AFTER_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(slurm_groups, "find_job", lambda name, index: None)
    asked: list[str | None] = []

    def submit(*_: object) -> str | None:
        asked.append(answers[len(asked)])
        return asked[-1]

    monkeypatch.setattr(slurm_groups, "_submit", submit)
    element = an_element(tmp_path / "run")
    if len(answers) == 4:  # no answer is no refusal: the run is not skipped
        with pytest.raises(UserError, match="give the same command again"):
            slurm_groups.submit_group([element], tmp_path, None)
    else:
        assert slurm_groups.submit_group([element], tmp_path, None) == answers[-1]
    assert len(asked) == submitted


def test_jobs_that_were_taken_though_the_answer_was_lost_are_not_submitted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_groups, "RETRY_AFTER_S", (0.0,))
    monkeypatch.setattr(slurm_groups, "find_job", lambda name, index: f"7_{index}")
    answers = iter(["Socket timed out"])
    monkeypatch.setattr(slurm_groups, "_submit", lambda *_: next(answers))
    element = an_element(tmp_path / "run")
    assert slurm_groups.submit_group([element], tmp_path, None) is None
    note = SlurmNote.read(tmp_path / "run")
    assert note is not None
    assert note.job == "7_0"
