"""What a person can set under `hydra.launcher` for Slurm, beyond what every launcher has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sweeper.launch.settings import Settings


@dataclass
class SlurmSettings(Settings):
    """More keys of `hydra.launcher`; all are read from each job's own config.

    `max_parallel` caps the running elements of each array.
    """

    partition: str | None = None  # null = the cluster's default
    constraint: str | None = None  # features that the nodes must have
    account: str | None = None  # that is charged
    qos: str | None = None  # quality of service
    mem_gib: float | None = None  # memory on each node, GiB; null = the cluster's default
    gpus_per_node_max: int | None = None  # more GPUs span nodes; null = what the nodes have
    sbatch: dict[str, Any] = field(default_factory=dict)  # any other option, by its long name
    srun: list[str] = field(default_factory=list)  # more arguments of srun
    setup: list[str] = field(default_factory=list)  # shell lines before the ranks start
    signal_s: int = 120  # seconds before the time limit at which a run saves itself
    max_requeues: int = 20  # continue a run after its time limit or a preemption so many times
