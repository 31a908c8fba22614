"""What one run asks of Slurm, in the words of `sbatch`."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from sweeper.launch.job_end import LINGER_S
from sweeper.launch.runs import Resources


def spread(need: Resources, gpus_per_node: int) -> Resources:
    """The same GPUs on nodes that have `gpus_per_node` each: 16 on nodes of 8 are 2 x 8.

    They are divided evenly: 12 on nodes of 8 are 2 x 6.
    """
    if need.nodes > 1 or need.gpus <= gpus_per_node:
        return need
    nodes = math.ceil(need.gpus / gpus_per_node)
    while need.gpus % nodes:
        nodes += 1
    return dataclasses.replace(need, nodes=nodes, gpus=need.gpus // nodes)


def parameters(need: Resources) -> dict[str, Any]:
    """For `submitit.SlurmExecutor.update_parameters`; what is not asked for is left out."""
    asked = need.cluster
    found: dict[str, Any] = {
        "nodes": need.nodes,
        "ntasks_per_node": need.ranks_per_node,
        "gpus_per_node": need.gpus or None,
        "cpus_per_task": need.cpus_per_task,
        "partition": asked.get("partition"),
        "constraint": asked.get("constraint"),
        "account": asked.get("account"),
        "qos": asked.get("qos"),
        "setup": list(asked.get("setup") or ()) or None,
        "srun_args": _srun(need),
    }
    more: dict[str, Any] = {"requeue": True}
    if asked.get("mem_gib") is not None:
        more["mem"] = f"{math.ceil(asked['mem_gib'] * 1024)}M"
    if need.timeout_min is not None:
        more["time"] = math.ceil(need.timeout_min)  # minutes; Slurm has no smaller unit
    # Through srun's tasks, not the batch shell, which would wait for srun before it acts.
    more["signal"] = f"USR2@{_signal_s(need)}"
    more.update(
        {key.replace("_", "-"): value for key, value in (asked.get("sbatch") or {}).items()}
    )
    found["additional_parameters"] = more
    return {key: value for key, value in found.items() if value is not None}


def _signal_s(need: Resources) -> int:
    """How long before its time limit a run is warned; most of the time is for training, seconds."""
    asked_s = int(need.cluster.get("signal_s", 0))
    if need.timeout_min is None:
        return asked_s
    return min(asked_s, 60 * math.ceil(need.timeout_min) // 4)


def _srun(need: Resources) -> list[str]:
    # The ranks of a run end together. srun does not take the number of CPUs from sbatch.
    arguments = ["--kill-on-bad-exit=1", f"--wait={round(LINGER_S)}"]
    if need.cpus_per_task is not None:
        arguments.append(f"--cpus-per-task={need.cpus_per_task}")
    return [*arguments, *(need.cluster.get("srun") or ())]


def group_key(need: Resources) -> str:
    """Runs with the same key can be elements of one array."""
    return json.dumps(parameters(need), sort_keys=True, default=str)
