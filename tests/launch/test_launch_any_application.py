"""`hydra/launcher=local` and `debug` for applications that do not plan and keep no records."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launch_app import Sweep, wait_until

PROGRAM = Path(__file__).parent / "generic" / "program.py"
LOCAL = ("-m", "hydra/launcher=local", "hydra/sweeper=cells", "hydra.launcher.preload=[]")
DEBUG = ("-m", "hydra/launcher=debug", "hydra/sweeper=cells")


def run(sweep: Sweep, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return sweep(*arguments, "hydra.sweep.dir=sweep", program=PROGRAM, **changes)


def returns(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found = re.search(r"^RETURNS (.*)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    jobs: list[dict[str, Any]] = json.loads(found[1])
    return jobs


def values(done: subprocess.CompletedProcess[str]) -> list[Any]:
    assert all(job["status"] == "COMPLETED" for job in returns(done)), done.stdout
    return [job["value"] for job in returns(done)]


def test_a_package_beside_the_command_is_found_in_the_run(sweep: Sweep) -> None:
    (sweep.cwd / "userpkg.py").write_text("NAME = 'theirs'\n")
    assert values(run(sweep, *LOCAL, "+do=package")) == ["theirs"]


@pytest.mark.parametrize("launcher", [LOCAL, DEBUG], ids=["local", "debug"])
def test_values_and_errors_come_back_in_order(sweep: Sweep, launcher: tuple[str, ...]) -> None:
    done = run(sweep, *launcher, "+do=value,raise", "+x=1,2")
    jobs = returns(done)
    assert [job["status"] for job in jobs] == ["COMPLETED", "COMPLETED", "FAILED", "FAILED"]
    assert [job["value"] for job in jobs] == [
        1,
        2,
        "ValueError: 1 is wrong",
        "ValueError: 2 is wrong",
    ]
    assert (sweep.dir / "3" / ".hydra" / "overrides.yaml").read_text() == "- +do=raise\n- +x=2\n"
    # What the launcher keeps is out of sight.
    names = {path.name for path in sweep.dir.iterdir()}
    assert names == {"0", "1", "2", "3", "multirun.yaml", ".sweeper"}
    assert not list(sweep.dir.glob("[0-9]/record.json"))


def test_what_cannot_be_sent_between_processes_is_said_to_be_so(sweep: Sweep) -> None:
    odd, lock, left, fine = returns(run(sweep, *LOCAL, "+do=odd,lock,exit,value", "+x=1"))
    assert odd == {"status": "FAILED", "value": "RemoteError: OddError: 1 and 2"}
    assert lock["status"] == "FAILED"
    assert "cannot be sent back" in lock["value"]
    assert left["value"].endswith("rank 0 exited with code 4")
    assert fine == {"status": "COMPLETED", "value": 1}


def test_a_run_that_exits_does_not_end_the_debug_sweep(sweep: Sweep) -> None:
    left, fine = returns(run(sweep, *DEBUG, "+do=exit,value", "+x=1"))
    assert left["status"] == "FAILED"
    assert fine == {"status": "COMPLETED", "value": 1}


def test_the_debug_launcher_runs_one_rank_only(sweep: Sweep) -> None:
    done = run(sweep, *DEBUG, "+do=value", "+x=1", "hydra.launcher.gpus_per_node=2")
    assert "the debug launcher runs one rank; use hydra/launcher=local" in done.stdout
    assert returns(done)[0]["status"] == "FAILED"


def test_forked_runs_draw_different_numbers(sweep: Sweep) -> None:
    arguments = (*LOCAL[:-1], "hydra.launcher.preload=[numpy,torch]", "+do=random", "+x=1,2")
    first, second = values(run(sweep, *arguments, "hydra.launcher.cpus_per_task=1"))
    assert len(first) == 4  # torch was there already
    assert not {*first[:3]} & {*second[:3]}
    assert first[3] == second[3] == 1  # threads


def test_the_environment_is_the_persons_without_the_schedulers(sweep: Sweep) -> None:
    done = run(
        sweep,
        *LOCAL,
        "+do=environment",
        "hydra.launcher.gpus_per_node=1",
        "+hydra.launcher.env.MY_SETTING='7'",
        SLURM_JOB_ID="12",
        SLURM_NTASKS="4",
        KEPT="yes",
    )
    (value,) = values(done)
    assert value["forked"]
    environment, cores = value["environment"], value["cores"]
    assert not [name for name in environment if name.startswith("SLURM_")]
    assert (environment["KEPT"], environment["MY_SETTING"]) == ("yes", "7")
    assert environment["OMP_NUM_THREADS"] == environment["SWEEPER_THREADS"] == str(len(cores))
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in environment


def test_each_run_sees_a_gpu_of_its_own_and_a_run_too_large_is_skipped(sweep: Sweep) -> None:
    arguments = (*LOCAL, "+do=environment", "hydra.launcher.gpus_per_node=${gpu_count}")
    done = run(
        sweep, *arguments, "+gpu_count=1,1,8,0", CUDA_VISIBLE_DEVICES="GPU-8932f937,MIG-377e0049"
    )
    jobs = returns(done)
    environments = [jobs[job]["value"]["environment"] for job in (0, 1, 3)]
    seen = [environment["CUDA_VISIBLE_DEVICES"] for environment in environments]
    assert sorted(seen[:2]) == ["GPU-8932f937", "MIG-377e0049"]
    assert seen[2] == ""  # a run that wants none sees none
    assert jobs[2]["status"] == "FAILED"
    assert jobs[2]["value"].endswith("needs 8, has 2 GPUs")


def test_cold_starts_can_be_asked_for(sweep: Sweep) -> None:
    (value,) = values(run(sweep, *LOCAL, "hydra.launcher.warm=false", "+do=environment"))
    assert not value["forked"]


def test_under_torchrun_it_refuses(sweep: Sweep) -> None:
    worker = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    done = run(sweep, *LOCAL, "+x=1", **worker)
    assert done.returncode == 1
    assert "run the same command with python, and set gpus=N" in done.stdout
    assert "Traceback" not in done.stdout


def test_variables_of_a_single_run_start_it_cold(sweep: Sweep) -> None:
    # Libraries read some when they are imported, which the process that forks has done already.
    own = "+hydra.launcher.env.WHICH='${x}'"
    first, second = values(run(sweep, *LOCAL, "+do=environment", own, "+x=1,2"))
    assert [first["environment"]["WHICH"], second["environment"]["WHICH"]] == ["1", "2"]
    assert not first["forked"]
    assert not second["forked"]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise ImportError('no such library')", "cannot import faulty ahead of the runs"),
        (
            "from threading import Thread, Event; Thread(target=Event().wait, daemon=True).start()",
            "a preloaded module started a thread: runs start cold",
        ),
        ("import os; os._exit(5)", "the rest starts cold"),
    ],
)
def test_a_module_that_cannot_be_preloaded_costs_time_only(
    sweep: Sweep, module: str, said: str
) -> None:
    (sweep.cwd / "faulty.py").write_text(module)
    done = run(sweep, *LOCAL[:-1], "hydra.launcher.preload=[faulty]", "+do=value", "+x=1,2")
    assert values(done) == [1, 2]
    assert done.stdout.count(said) == 1


def test_ctrl_c_reaches_other_applications_as_usual(sweep: Sweep) -> None:
    import signal

    process = sweep.start(
        *LOCAL, "+do=value", "+x=range(30)", "hydra.sweep.dir=sweep", program=PROGRAM
    )
    wait_until(lambda: list(sweep.dir.glob("*/.hydra")))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=15)
    assert process.returncode in (-signal.SIGINT, 130), output
    sweep.assert_nothing_left()


@pytest.mark.gpu
def test_a_forked_run_can_use_its_gpu(sweep: Sweep) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    preload = "hydra.launcher.preload=[numpy,torch,torch._dynamo]"
    assert values(run(sweep, *LOCAL[:-1], preload, "+do=cuda", "+x=1,2")) == [[1, 2.0], [1, 2.0]]
