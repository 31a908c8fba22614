"""Real trainings that go wrong, on one rank of several and on all, in every phase.

Ranks that did nothing wrong wait in real collectives for those that did.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from commands import ROOT, SMALL, environment, records
from launch_app import wait_until

from sweeper.launch.leftover import is_alive
from sweeper.record import Record, Status

PACKAGE = Path(__file__).parent / "training" / "faultypkg.py"

# name -> ranks, what goes wrong
FAULTS = {
    "fine": (1, ""),
    "setup_killed": (1, "setup:0:SIGKILL"),
    "warmup_exits": (1, "forward:0:exit"),
    "measure_crashes": (1, "measure:0:SIGSEGV"),
    "save_on_a_full_disk": (1, "last:0:full"),
    "forward_oom": (2, "forward:1:oom"),
    "backward_oom": (2, "backward:all:oom"),
    "optimizer_oom": (2, "optimizer:1:oom"),
    "one_raises": (2, "forward:1:raise"),
    "one_hangs": (2, "forward:1:hang"),
}
HANG_MIN = 0.25


def prepare(directory: Path) -> None:
    """A person's package, with a model option and an experiment for each fault."""
    shutil.copy(PACKAGE, directory)
    (directory / "conf" / "model").mkdir(parents=True)
    (directory / "conf" / "experiment").mkdir()
    shipped = (ROOT / "conf" / "model" / "classifier_small.yaml").read_text()
    ours = shipped.replace("sweeper.models.classifier.Classifier", "faultypkg.Faulty")
    (directory / "conf" / "model" / "faulty.yaml").write_text(ours + "fault: ''\n")
    for name, (ranks, fault) in FAULTS.items():
        values = {
            "gpus": {"count": ranks},
            "model": {"fault": fault},
            "optim": {"_target_": "faultypkg.FaultyAdamW"},
            "hydra": {"launcher": {"hang_timeout_min": HANG_MIN if fault.endswith("hang") else 30}},
        }
        text = f"# @package _global_\n{json.dumps(values)}\n"  # JSON is YAML
        (directory / "conf" / "experiment" / f"{name}.yaml").write_text(text)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def done(directory: Path) -> subprocess.CompletedProcess[str]:
    prepare(directory)
    experiments = f"experiment={','.join(FAULTS)}"
    more = ("model=faulty", "hardware.threads=1", "hydra.launcher.order=given")
    return subprocess.run(
        [
            sys.executable,
            str(ROOT / "train.py"),
            "--config-dir",
            "conf",
            "-m",
            experiments,
            *more,
            *SMALL,
        ],
        cwd=directory,
        env=environment(MASTER_PORT="29500", RANK="5", WORLD_SIZE="9"),
        capture_output=True,
        text=True,
        timeout=700,
    )


@pytest.fixture(scope="module")
def found(done: subprocess.CompletedProcess[str], directory: Path) -> dict[str, Record]:
    assert done.returncode == 1, done.stdout + done.stderr
    return {record.identity.choices["experiment"]: record for record in records(directory)}


@pytest.mark.parametrize(
    ("name", "status", "phase", "kind", "rank"),
    [
        ("setup_killed", Status.KILLED, "setup", "SIGKILL", 0),
        ("warmup_exits", Status.FAILED, "warmup", "SystemExit", 0),
        ("measure_crashes", Status.FAILED, "measure", "SIGSEGV", 0),
        ("forward_oom", Status.OOM, "warmup", "OutOfMemoryError", 1),
        ("backward_oom", Status.OOM, "warmup", "OutOfMemoryError", None),
        ("optimizer_oom", Status.OOM, "warmup", "OutOfMemoryError", 1),
        ("one_raises", Status.FAILED, "warmup", "ValueError", 1),
    ],
)
def test_status_phase_and_the_rank_that_began_it(
    found: dict[str, Record], name: str, status: Status, phase: str, kind: str, rank: int | None
) -> None:
    record = found[name]
    assert record.error is not None
    assert (record.status, record.phase, record.error.type) == (status, phase, kind)
    if rank is not None:
        assert record.error.rank == rank
    assert record.error.log == f"attempt0/rank{record.error.rank}.err"
    if status is Status.OOM:
        assert record.error.bytes_requested == 3 * 2**29


def test_the_others_complete(found: dict[str, Record]) -> None:
    assert found["fine"].status is Status.COMPLETED
    assert len(found) == len(FAULTS)


def test_a_rank_that_hangs_ends_the_run_with_the_stack_of_each(found: dict[str, Record]) -> None:
    record = found["one_hangs"]
    assert record.status is Status.TIMEOUT
    assert record.error is not None
    assert record.error.message == f"no new step or phase for {HANG_MIN:g} min"
    stacks = record.error.traceback or ""
    waiting, hanging = stacks.split("rank 1:\n")
    assert "in moment" in hanging
    assert "rank 0:\n" in waiting
    assert "in moment" not in waiting
    assert "backward" in waiting or "all_reduce" in waiting


def test_a_full_disk_while_saving_is_said_to_be_so(
    found: dict[str, Record], done: subprocess.CompletedProcess[str]
) -> None:
    record = found["save_on_a_full_disk"]
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error.message == "rank 0 failed and could not write why: is the disk full?"
    assert record.phase == "evaluate"  # the last it could write
    assert record.time.setup_s is not None  # what was known by then
    assert "is the disk full?" in done.stdout


def test_all_ranks_end_together(found: dict[str, Record], directory: Path) -> None:
    notes = list(directory.rglob("attempt0/exits.json"))
    assert len(notes) == len(FAULTS)
    for note in notes:
        moments = [
            datetime.fromisoformat(end["at"]) for end in json.loads(note.read_text())["exits"]
        ]
        assert (max(moments) - min(moments)).total_seconds() < 30
    ranks = [
        rank
        for path in directory.rglob("attempt0/ranks.json")
        for rank in json.loads(path.read_text())["ranks"]
    ]
    assert len(ranks) == sum(count for count, _ in FAULTS.values())
    wait_until(lambda: not any(is_alive(rank["pid"], rank["started"]) for rank in ranks), 15)


def test_what_the_person_exported_for_other_programs_changes_nothing(
    found: dict[str, Record],
) -> None:
    assert "MASTER_PORT" not in os.environ
    assert found["fine"].hardware.world_size == 1
    assert found["one_raises"].hardware.world_size == 2
