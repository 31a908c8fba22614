"""What a model does that depends on how a batch is split, and the seeding of what it draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sweeper.data.keyed import derive_seed

Parity = Literal["exact", "rng", "batch"]

# Attributes in which layers keep the share of what they drop: torch's own, and stochastic depth.
_RATES = ("p", "dropout", "drop_prob", "drop_rate", "survival_prob")
_RANDOM_NAMES = ("drop", "stochastic")
_ALWAYS_RANDOM = (nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
_KEEP_DROPOUT_RATE = (nn.MultiheadAttention, nn.RNNBase)


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def is_random(module: nn.Module) -> bool:
    """Whether a layer draws random numbers while it trains, judged by its class and its rate."""
    if isinstance(module, _ALWAYS_RANDOM):
        return True
    name = type(module).__name__.lower()
    if not isinstance(module, _KEEP_DROPOUT_RATE) and not any(w in name for w in _RANDOM_NAMES):
        return False
    rates = [getattr(module, rate, None) for rate in _RATES]
    return any(isinstance(rate, int | float) and rate > 0 for rate in rates)


def parity_of(model: nn.Module) -> Parity:
    """How far the loss is free of the split into ranks and micro-batches.

    Returns:
        "exact": equal but for rounding; "rng": layers such as dropout draw anew for each
        micro-batch; "batch": BatchNorm sees a micro-batch where it would see the batch.
    """
    if has_batch_norm(model):
        return "batch"
    return "rng" if any(map(is_random, model.modules())) else "exact"


def seed_forward(seed: int, step: int, rank: int, micro_batch: int, device: torch.device) -> None:
    """Seed what layers draw in one forward pass: a run repeats and resumes with the same draws."""
    key = derive_seed(seed, "forward", step, rank, micro_batch)
    # Not torch.manual_seed: without CUDA it formats a traceback each time, which costs 0.2 ms.
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)  # of the current device, which is this rank's


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's global generators: the CPU's, and the device's where it is CUDA."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
