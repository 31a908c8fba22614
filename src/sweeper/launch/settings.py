"""What a person can set under `hydra.launcher`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Settings:
    """Keys of `hydra.launcher`.

    The first group is read from each job's own config, so that it may refer to it
    (`gpus_per_node: ${gpus.count}`); the second is read once, from the first job's.
    """

    # Of each run
    gpus_per_node: int = 1  # GPUs on each node, one rank each; without GPUs, processes
    nodes: int = 1  # machines a run spans
    cpus_per_task: int | None = None  # cores of a rank; null = an equal share
    timeout_min: float | None = 60.0  # time limit of a run, minutes; null = none
    hang_timeout_min: float | None = 30.0  # end a run without a new step or phase for minutes
    env: dict[str, str] = field(default_factory=dict)  # more environment variables of the ranks

    # Of the sweep
    max_parallel: int | None = None  # runs at the same time; null = as many as fit
    exclusive_node: bool | None = None  # one run at a time; null = true on CPU, false on GPU
    runs_per_gpu: int = 1  # runs that share a GPU; above 1 their times are not comparable
    use_busy_gpus: bool = False  # use GPUs that other processes compute on, too
    warm: bool = True  # start ranks from a process that has imported `preload` already
    preload: list[str] = field(  # modules to import once, not in every rank
        default_factory=lambda: ["numpy", "torch", "torch._dynamo"]
    )
    order: str = "cheap_first"  # cheap_first: fewest ranks first; given: as listed
    heartbeat_s: float = 1.0  # a run says where it is this often, seconds
    detach: bool = False  # leave the runs to the cluster and return (clusters only)
