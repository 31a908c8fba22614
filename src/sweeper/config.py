"""The typed schema of the whole config tree; it checks, splits the batch, and names the experiment.

The dataclasses are the schema that Hydra composes into: an unknown key or a value of the wrong
type is refused while composing. Nodes with a `_target_` (model, data, optim, lr, tracker) are open;
their keys are checked against the target's signature in `sweeper.instantiate`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from sweeper.errors import UserError


@dataclass
class PrecisionConfig:
    """Which dtypes a step uses."""

    name: str = "fp32"
    compute: str = "float32"  # dtype of matrix products: float32, bfloat16, float16 or best
    parameters: str = "float32"  # dtype the weights are kept in: float32 or bfloat16
    autocast: bool = False  # cast per operation, weights stay as they are
    tf32: bool = False  # let CUDA matrix products use TF32


@dataclass
class CkptConfig:
    """Gradient checkpointing: drop a block's activations, compute them again in the backward."""

    enabled: bool = False
    blocks: str | None = None  # regular expression for module names; null = the repeated blocks


@dataclass
class AccumConfig:
    steps: int = 1  # micro-batches per optimizer step


@dataclass
class GpusConfig:
    count: int = 1  # GPUs of a run, one rank each; on a CPU-only machine, processes


@dataclass
class ParallelConfig:
    """How ranks share the work."""

    strategy: str = "ddp"  # ddp: every rank holds the whole model
    gradient_as_bucket_view: bool = True  # gradients live in the communication buckets
    bucket_cap_mib: float = 25.0  # size of one communication bucket, MiB
    find_unused_parameters: bool = False  # needed where a step leaves parameters without gradient


@dataclass
class BatchConfig:
    size: int = 64  # global batch, samples per optimizer step over all ranks
    per_gpu: int | None = None  # samples per GPU and optimizer step; null = size / gpus


@dataclass
class LoaderConfig:
    workers: int = 1  # threads of each rank that build batches
    prefetch: int = 2  # steps built ahead; 0 = each is built when it is asked for


@dataclass
class TrainConfig:
    steps: int = 40  # optimizer steps
    max_grad_norm: float | None = None  # clip the gradient's norm; null = do not clip
    ema_decay: float | None = None  # decay of the average of the weights; null = no average
    minutes: float = 60.0  # time limit of the run, minutes


@dataclass
class MeasureConfig:
    warmup_steps: int = 10  # steps before the measured window
    steps: int = 20  # least number of steps in the measured window
    memory: bool = True  # count FLOPs, and on the CPU tensors, on the last step, outside the window


@dataclass
class EvaluateConfig:
    samples: int = 256  # held-out samples; 0 = no evaluation
    batch: int = 64  # samples per forward pass and rank


@dataclass
class HardwareConfig:
    device: str = "auto"  # auto, cpu or cuda
    memory_limit_gib: float | None = None  # pretend each device has this much memory, GiB
    threads: int | None = None  # CPU threads per rank; null = share the cores equally


@dataclass
class SweepConfig:
    name: str | None = None  # continue or start the sweep of this name; null = a new unique name
    dir: str = "sweeps"  # directory that holds all sweeps
    allow_change: bool = False  # continue under another commit, torch, device or other cells


@dataclass
class Config:
    """The whole tree."""

    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    lr: dict[str, Any] = field(default_factory=dict)
    tracker: dict[str, Any] | None = None
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    ckpt: CkptConfig = field(default_factory=CkptConfig)
    accum: AccumConfig = field(default_factory=AccumConfig)
    gpus: GpusConfig = field(default_factory=GpusConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    mode: str = "train"  # train: run it
    seed: int = 0  # of weights, order of samples, noise
    repro: str = "fast"  # strict: deterministic algorithms alone, so that runs repeat bit for bit
    repeat: int = 1  # how often each configuration is run
    rerun: str = "failed"  # when continuing a sweep: failed, all or none of the finished runs


# What a run computes does not depend on these; they stay out of the config id.
NOT_MEASURED = ("tracker", "sweep", "repeat", "rerun", "mode")


@dataclass(frozen=True)
class Split:
    """How one optimizer step's batch is divided. Every figure counts samples."""

    global_batch: int
    per_gpu: int
    micro_batch: int
    accumulation: int
    gpus: int


def split_batch(batch: BatchConfig, accum: int, gpus: int) -> Split:
    """Divide the global batch into micro-batch x accumulation x gpus.

    Raises:
        UserError: it does not divide; the message names the nearest sizes that do.
    """
    for key, value in (("accum", accum), ("gpus", gpus)):
        if value < 1:
            raise UserError(key, f"{value} is not possible", f"use {key}=1 or more")
    if batch.per_gpu is not None:
        key, size, parts = "batch.per_gpu", batch.per_gpu, accum
        factors = f"accum={accum}"
    else:
        key, size, parts = "batch.size", batch.size, accum * gpus
        factors = f"accum={accum} x gpus={gpus}"
    if size < 1:
        raise UserError(key, f"{size} is not possible", f"use {key}={parts} or a multiple of it")
    if size % parts:
        below, above = size - size % parts, size - size % parts + parts
        sizes = " or ".join(f"{key}={n}" for n in (below, above) if n > 0)
        raise UserError(key, f"{size} cannot be divided by {factors} = {parts}", f"use {sizes}")
    per_gpu = size if batch.per_gpu is not None else size // gpus
    return Split(
        global_batch=per_gpu * gpus,
        per_gpu=per_gpu,
        micro_batch=per_gpu // accum,
        accumulation=accum,
        gpus=gpus,
    )


_CHOICES: dict[str, tuple[str, ...]] = {
    "precision.compute": ("float32", "bfloat16", "float16", "best"),
    "precision.parameters": ("float32", "bfloat16"),
    "parallel.strategy": ("ddp",),
    "hardware.device": ("auto", "cpu", "cuda"),
    "mode": ("train",),
    "repro": ("fast", "strict"),
    "rerun": ("failed", "all", "none"),
}

_AT_LEAST: dict[str, float] = {
    "train.steps": 1,
    "measure.warmup_steps": 1,
    "measure.steps": 1,
    "evaluate.samples": 0,
    "evaluate.batch": 1,
    "loader.workers": 1,
    "loader.prefetch": 0,
    "repeat": 1,
    "seed": 0,
}

_POSITIVE = (
    "train.minutes",
    "train.max_grad_norm",
    "parallel.bucket_cap_mib",
    "hardware.memory_limit_gib",
    "hardware.threads",
)


def _lookup(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def check(config: Config) -> Split:
    """Check what types alone cannot; returns the batch's split.

    Raises:
        UserError: names the key and what to type instead.
    """
    for key, allowed in _CHOICES.items():
        value = _lookup(config, key)
        if value not in allowed:
            raise UserError(key, f"unknown value {value!r}", f"use one of {', '.join(allowed)}")
    for key, least in _AT_LEAST.items():
        value = _lookup(config, key)
        if value < least:
            raise UserError(key, f"{value} is too small", f"use {key}={least:g} or more")
    for key in _POSITIVE:
        value = _lookup(config, key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UserError(key, f"{value} is not possible", f"use a value above 0 for {key}")
    decay = config.train.ema_decay
    if decay is not None and not 0 <= decay < 1:
        raise UserError("train.ema_decay", f"{decay} is not a decay", "use a value in [0, 1)")
    # One step more: the last one is spent on counting memory and FLOPs.
    needed = config.measure.warmup_steps + config.measure.steps + int(config.measure.memory)
    if config.train.steps < needed:
        raise UserError(
            "train.steps",
            f"{config.train.steps} steps leave no room for {config.measure.warmup_steps} warm-up "
            f"and {config.measure.steps} measured steps"
            + (" and one to count memory" if config.measure.memory else ""),
            f"use train.steps={needed} or more, or a smaller measure.steps",
        )
    return split_batch(config.batch, config.accum.steps, config.gpus.count)


def config_id(config: dict[str, Any]) -> str:
    """Short hash of everything that defines the measurement; equal id = same experiment.

    Args:
        config: the resolved tree as plain values.
    """
    tree = {key: copy.deepcopy(value) for key, value in config.items() if key not in NOT_MEASURED}
    tree["train"].pop("minutes", None)  # how long a run may take does not change what it measures
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def run_id(sweep: str, config: str, repeat: int) -> str:
    """Hash of (sweep, config id, repeat): names the run's directory and its tracker run."""
    return hashlib.blake2b(f"{sweep}/{config}/{repeat}".encode(), digest_size=5).hexdigest()
