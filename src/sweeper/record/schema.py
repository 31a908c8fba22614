"""The schema of what a run leaves behind. Every quantity carries its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class Status(StrEnum):
    """How a run ended. `oom` and `skipped` are results; the rest after `completed` are failures."""

    COMPLETED = "completed"
    OOM = "oom"
    DIVERGED = "diverged"
    FAILED = "failed"
    TIMEOUT = "timeout"
    KILLED = "killed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def is_failure(self) -> bool:
        return self not in (Status.COMPLETED, Status.OOM, Status.SKIPPED)


@dataclass(kw_only=True)
class Identity:
    """Who a run is. Known before it starts."""

    sweep: str
    run_id: str
    config_id: str
    repeat: int = 0
    overrides: list[str] = field(default_factory=list)
    choices: dict[str, str] = field(default_factory=dict)  # config group -> chosen option
    variant: str = ""  # short label without spaces, e.g. "precision=amp+ckpt=on"
    command: str = ""  # command line that repeats this run alone


@dataclass(kw_only=True)
class MemoryPeaks:
    """Peaks of one phase; on several ranks the maximum over them."""

    peak_allocated_bytes: int | None = None  # CUDA: allocator, bytes handed out
    peak_active_bytes: int | None = None  # CUDA: allocator, with blocks waiting for streams
    peak_reserved_bytes: int | None = None  # CUDA: allocator, bytes held from the device
    peak_device_bytes: int | None = None  # NVML: this process on the device
    peak_tensor_bytes: int | None = None  # CPU: live tensor storages, counted on one warm step
    peak_rss_bytes: int | None = None  # resident set high-water mark: secondary, noisy

    @property
    def headline_bytes(self) -> int | None:
        """The one comparable figure: bytes the training itself holds at its peak."""
        if self.peak_allocated_bytes is not None:
            return self.peak_allocated_bytes
        return self.peak_tensor_bytes


@dataclass(kw_only=True)
class MemoryParts:
    """The warm peak by component; the parts and the remainder add up to the headline peak.

    `allocator_reserve_bytes` and `context_bytes` lie beside it: they are held on the device but not
    handed out to tensors.
    """

    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    ema_bytes: int | None = None
    buckets_bytes: int | None = None
    activations_bytes: int | None = None
    data_bytes: int | None = None
    remainder_bytes: int | None = None
    allocator_reserve_bytes: int | None = None
    context_bytes: int | None = None


@dataclass(kw_only=True)
class Memory:
    cold: MemoryPeaks = field(default_factory=MemoryPeaks)  # start to end of warm-up: does it fit
    warm: MemoryPeaks = field(default_factory=MemoryPeaks)  # steady state
    parts: MemoryParts = field(default_factory=MemoryParts)
    min_rank_peak_bytes: int | None = None  # smallest headline peak over ranks: imbalance
    peak_over_formula: float | None = (
        None  # peak / (parameters + gradients + optimizer + activations)
    )
    allocator_retries: int | None = None  # cache emptied because memory ran short
    allocator_ooms: int | None = None
    allocator_settings: str | None = None


@dataclass(kw_only=True)
class StepParts:
    """Mean seconds a step spends in each part; they add up to the mean step time."""

    data_wait_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    communication_s: float | None = None
    optimizer_s: float | None = None
    rest_s: float | None = None


@dataclass(kw_only=True)
class Time:
    """Times of the measured window on the slowest rank."""

    clock: str | None = None  # cuda_event or host
    step_time_s: float | None = None  # median over the window's steps
    step_time_q1_s: float | None = None
    step_time_q3_s: float | None = None
    step_time_mean_s: float | None = None
    step_time_fastest_rank_s: float | None = None
    host_step_time_s: float | None = None  # the same window by the host's clock, per step
    host_bound: bool | None = None  # the device waits for the host: see docs/measuring.md
    warmup_steps: int | None = None
    measured_steps: int | None = None
    samples_per_s: float | None = None  # global batch / step time, over all ranks
    steady: bool | None = None
    second_half_over_first: float | None = None  # medians of the window's halves
    slope_per_step: float | None = None  # relative change of step time per step
    parts: StepParts = field(default_factory=StepParts)
    compile_s: float | None = None
    setup_s: float | None = None  # from the start of the run's code to its first evaluation
    training_s: float | None = None  # all steps, warm-up included
    evaluation_s: float | None = None
    run_s: float | None = None  # from the start of the run's code, imports done, to the record
    flops_per_step: float | None = None  # useful FLOPs, recomputation not counted
    hardware_flops_per_step: float | None = None  # FLOPs executed, recomputation counted
    mfu: float | None = None
    hfu: float | None = None


@dataclass(kw_only=True)
class Loss:
    train_first: float | None = None
    train_last: float | None = None
    validation_first: float | None = None  # before the first step
    validation_last: float | None = None
    validation_samples: int | None = None
    optimizer_steps: int | None = None
    skipped_steps: int | None = None  # fp16: steps not taken because of an overflow
    loss_scale: float | None = None
    grad_norm_last: float | None = None


@dataclass(kw_only=True)
class Numerics:
    """What was asked and what was done."""

    precision: str | None = None  # as asked
    parameter_dtype: str | None = None
    compute_dtype: str | None = None  # of matrix products, as seen in the step
    autocast: bool | None = None
    grad_scaler: bool | None = None
    tf32: bool | None = None  # CUDA: TF32 in matrix products
    attention: str | None = None  # kernel of scaled dot product attention
    deterministic: bool | None = None
    parity: str | None = None  # exact, or rng (draws inside modules), or batch (BatchNorm)
    global_batch: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    checkpointed_blocks: int | None = None
    parameters: int | None = None  # trainable parameters of the model


@dataclass(kw_only=True)
class Hardware:
    device: str | None = None  # cpu or cuda
    device_name: str | None = None
    device_memory_bytes: int | None = None
    world_size: int | None = None
    nodes: int | None = None
    hosts: list[str] = field(default_factory=list)
    backend: str | None = None  # gloo or nccl
    cpu_name: str | None = None
    cpu_count: int | None = None
    threads_per_rank: int | None = None
    visible_devices: str | None = None
    memory_limit_bytes: int | None = None  # asked by hardware.memory_limit_gib
    shares_node_with: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Utilization:
    """Sampled beside the training process over the measured window."""

    gpu_percent: float | None = None
    gpu_memory_percent: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: list[str] = field(default_factory=list)
    cpu_percent: float | None = None
    samples: int | None = None


@dataclass(kw_only=True)
class Software:
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    driver: str | None = None
    sweeper: str | None = None
    hydra: str | None = None
    submitit: str | None = None
    wandb: str | None = None
    platform: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None


@dataclass(kw_only=True)
class Failure:
    """Why a run did not complete."""

    type: str
    message: str
    rank: int | None = None
    traceback: str | None = None
    bytes_requested: int | None = None
    signal: str | None = None
    exit_code: int | None = None
    log: str | None = None  # path relative to the run directory
    log_tail: str | None = None
    at: str | None = None  # when it happened, UTC


@dataclass(kw_only=True)
class Record:
    schema_version: int = SCHEMA_VERSION
    source: str = "measured"  # measured, estimate or imported
    identity: Identity
    attempt: int = 0
    attempts: list[dict[str, Any]] = field(default_factory=list)  # earlier attempts and their end
    status: Status
    phase: str | None = None  # setup, warmup, measure, evaluate, save, done
    error: Failure | None = None
    started_at: str | None = None
    finished_at: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    time: Time = field(default_factory=Time)
    loss: Loss = field(default_factory=Loss)
    numerics: Numerics = field(default_factory=Numerics)
    hardware: Hardware = field(default_factory=Hardware)
    utilization: Utilization = field(default_factory=Utilization)
    software: Software = field(default_factory=Software)
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class State:
    """Where a run is now."""

    state: str  # queued, running, finished
    attempt: int = 0
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    step_time_s: float | None = None
    memory_bytes: int | None = None
    pid: int | None = None
    pid_started: float | None = None  # process start time: a pid alone can be reused
    host: str | None = None
    job_id: str | None = None
    heartbeat_at: str | None = None
