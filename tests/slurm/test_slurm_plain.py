"""A cluster without an accounting database: squeue's word has to do."""

from __future__ import annotations

import time

from slurm_sweep import HERE, SlurmSweep

from sweeper.record import Status


def test_every_end_is_noticed_without_accounting(plain_sweep: SlurmSweep) -> None:
    sweep = plain_sweep
    process = sweep.start(
        "do=ok,kill,sleep", "seed=0,1", "seconds=600", "hydra.launcher.max_parallel=5"
    )
    sweep.wait_for_start("sleep")
    sweep.cluster("scancel", sweep.job("sleep"))
    sweep.cluster("scancel", sweep.job("sleep1"))  # may still wait
    cancelled = time.monotonic()
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 1, output
    assert time.monotonic() - cancelled < 60
    assert {name: record.status for name, record in sweep.records().items()} == {
        "ok": Status.COMPLETED,
        "ok1": Status.COMPLETED,
        "kill": Status.KILLED,
        "kill1": Status.KILLED,
        "sleep": Status.CANCELLED,
        "sleep1": Status.CANCELLED,
    }


def test_a_run_goes_on_without_accounting(plain_sweep: SlurmSweep) -> None:
    sweep = plain_sweep
    process = sweep.start("do=count", "steps=40")
    sweep.wait_for_start("count")
    sweep.cluster("scancel", "--signal=USR2", sweep.job("count"))
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    assert sweep.records()["count"].attempt == 1


def test_any_application_of_hydra_runs(plain_sweep: SlurmSweep) -> None:
    sweep = plain_sweep
    done = sweep(
        "-m", "hydra/launcher=slurm", "hydra/sweeper=cells", "+x=1,2,3", "hydra.sweep.dir=sweep",
        program=HERE / "plain" / "plain.py",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "ValueError: two is one too many" in done.stdout
    written = {path.parent.name for path in sweep.dir.glob("*/plain.log")}
    assert written == {"0", "1", "2"}
