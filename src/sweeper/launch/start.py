"""The message that starts a job: what each of its ranks needs to know."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeper.launch.devices import device_variables
from sweeper.launch.environment import clean, thread_variables
from sweeper.launch.leftover import Leftover
from sweeper.launch.runs import Resources
from sweeper.launch.slots import Lease
from sweeper.launch.supervised import import_path
from sweeper.place import JOB_VARIABLE, log_files


def start_message(
    *,
    job: str,
    need: Resources,
    lease: Lease,
    has_gpus: bool,
    folder: Path,
    log_dir: Path,
    attempt_dir: Path | None,
    variables: Mapping[str, str],
    warm: bool,
) -> dict[str, Any]:
    """The supervisor's `start` message.

    Args:
        job: id of the job.
        need: what it asked for.
        lease: what it got.
        has_gpus: whether this machine has any; if so, those that the job did not get are hidden.
        folder: submitit's folder of the job.
        log_dir: for the ranks' output.
        attempt_dir: for the supervisor's notes.
        variables: more environment variables, of all ranks.
        warm: fork the ranks, or else start new interpreters.
    """
    common = {
        **clean(os.environ),
        **thread_variables(lease.threads),
        **(device_variables(lease.gpus, os.environ) if has_gpus else {}),
        "SUBMITIT_EXECUTOR": "slots",
        JOB_VARIABLE: job,
        "SUBMITIT_SLOTS_NTASKS": str(need.ranks_per_node),
        "SUBMITIT_SLOTS_JOB_NUM_NODES": "1",
        "SUBMITIT_SLOTS_NODEID": "0",
        **variables,
        **need.env,
    }
    ranks = []
    for rank in range(need.ranks_per_node):
        output, errors = log_files(log_dir, rank)
        own = {
            "SUBMITIT_SLOTS_GLOBALID": str(rank),
            "SUBMITIT_SLOTS_LOCALID": str(rank),
            "SWEEPER_RANK": str(rank),
            "SWEEPER_LOCAL_RANK": str(rank),
        }
        ranks.append(
            {
                "rank": rank,
                "folder": str(folder),
                "cwd": os.getcwd(),
                "argv": list(sys.argv),
                "sys_path": import_path(),
                "env": {**common, **own},
                "stdout": str(output),
                "stderr": str(errors),
                "cores": list(lease.cores[rank]) if lease.cores else [],
                "threads": lease.threads,
            }
        )
    return {
        "op": "start",
        "job": job,
        "warm": warm,
        "timeout_s": need.timeout_min * 60 if need.timeout_min is not None else None,
        "attempt_dir": str(attempt_dir) if attempt_dir else None,
        "info": Leftover.info(job, lease.gpus),
        "ranks": ranks,
    }
