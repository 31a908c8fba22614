"""From one attempt of a Slurm job to the next: what rank 0's task settles between them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from typing import Any

import submitit
from omegaconf import OmegaConf

from sweeper.failure import ENDED_FILE, read_failures
from sweeper.launch import finish
from sweeper.launch.attempt import Attempt
from sweeper.launch.leftover import RANKS_FILE
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Resources, Run
from sweeper.place import Place
from sweeper.record import (
    CONFIG_FILE,
    Failure,
    Status,
    dump,
    now,
    read_identity,
    write_atomic,
    write_record,
)

PREEMPTED = "Preempted"  # the exception of a run that has saved itself because it was told to
COMMAND_S = 60.0  # how long scontrol may take
# A superseded attempt looks every second whether it is one: after this long it writes no more.
FENCE_S = 3.0


def _attempt(place: Place, number: int) -> Attempt:
    """As the launcher would know it."""
    config = PackedConfig(OmegaConf.create({}))
    path = place.run_dir / CONFIG_FILE
    plain = OmegaConf.to_container(OmegaConf.load(path)) if path.exists() else {}
    nodes = place.world_size // place.ranks_per_node
    need = Resources(gpus=0, nodes=nodes, ranks=place.ranks_per_node)
    assert isinstance(plain, dict)
    run = Run(
        identity=read_identity(place.run_dir),
        config=config,
        run_dir=place.run_dir,
        plain={str(key): value for key, value in plain.items()},
        resources=need,
    )
    return Attempt(run, number)


def note_start(place: Place, submission: str) -> None:
    """When and where the attempt began, as the local launcher notes it."""
    start: dict[str, Any] = {
        "job": submission,
        "slurm_job": submitit.JobEnvironment().job_id,
        "host": socket.gethostname(),
        "nodes": os.environ.get("SLURM_JOB_NODELIST"),
        "started_at": now(),
        "gpus": [],
        "ranks": [],
    }
    write_atomic(place.attempt_dir / RANKS_FILE, json.dumps(start, indent=1) + "\n")


def settle_earlier(place: Place) -> None:
    """Record, in its own directory, the attempt before this one if it died without a word.

    It may also still live on a node that Slurm has lost touch with; the directory of this attempt
    tells it to end, and it is given the time to.
    """
    before = place.run_dir / f"attempt{place.attempt - 1}"
    if not (before / RANKS_FILE).exists() or (before / ENDED_FILE).exists():
        return
    time.sleep(FENCE_S)
    failures = read_failures(before)
    message = "Slurm started the run again; nobody saw how this attempt ended"
    failure = failures[0] if failures else Failure(type="Lost", message=message, at=now())
    _note_end(_attempt(place, place.attempt - 1), failure)


def _note_end(attempt: Attempt, failure: Failure) -> None:
    record = finish.end_record(attempt, Status.KILLED, failure)
    write_atomic(attempt.dir / ENDED_FILE, dump(record))


def end_preempted(
    place: Place, max_requeues: int, requeues: bool, *, limit_min: float | None
) -> int:
    """Note the end of an attempt whose run has saved itself, and queue the job again.

    Args:
        place: of rank 0.
        max_requeues: after so many, the run is recorded as ended.
        requeues: False leaves it to Slurm, which has ended the job itself.
        limit_min: the time limit if that was the reason.

    Returns:
        The exit code of the task.
    """
    attempt = _attempt(place, place.attempt)
    why = f"the time limit of {limit_min:g} min" if limit_min is not None else "a preemption"
    if not (place.attempt_dir / ENDED_FILE).exists():  # the run's own says more
        message = f"saved itself ahead of {why}"
        failure = Failure(type=PREEMPTED, message=message, rank=0, at=now())
        _note_end(attempt, failure)
    if not requeues:
        return 0
    count = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if count >= max_requeues:
        message = f"met {why} after {count} requeues (hydra.launcher.max_requeues)"
        status = Status.TIMEOUT if limit_min is not None else Status.KILLED
        end = Failure(type=PREEMPTED, message=message, at=now())
        write_record(place.run_dir, finish.end_record(attempt, status, end))
        return 0
    job = submitit.JobEnvironment().job_id
    try:
        subprocess.run(
            ["scontrol", "requeue", job],
            check=True,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        end = Failure(
            type="RequeueFailed",
            message=f"saved itself ahead of {why}, but Slurm did not queue it again: {said}",
            at=now(),
        )
        write_record(place.run_dir, finish.end_record(attempt, Status.KILLED, end))
        return 1
    return 0
