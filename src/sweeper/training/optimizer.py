"""Building the optimizer from its config node, in its fastest correct form for the device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sweeper.errors import UserError
from sweeper.instantiate import arguments, build, locate


def build_optimizer(
    node: Mapping[str, Any],
    parameters: Sequence[nn.Parameter],
    device: torch.device,
    *,
    scaled: bool = False,
) -> Optimizer:
    """The config's optimizer over `parameters`.

    Where neither `fused` nor `foreach` is set and the optimizer has them, one kernel updates all
    parameters (fused), or one kernel an operation does (foreach).

    Args:
        node: `_target_` and arguments; the parameters are the program's.
        parameters: what to train.
        device: where they live.
        scaled: gradients come from a GradScaler, so that updates may be skipped.

    Raises:
        UserError: the node cannot be built, or needs a closure.
    """
    target = locate(node, "optim")
    given = arguments(node)
    if scaled and given.get("fused") and _keeps_unset_momentum(target):
        raise UserError(
            "optim.fused",
            "fused SGD takes its momentum from unset memory if float16 skips the first update",
            "use optim.fused=null",
        )
    chosen = _implementation(target, given, device, scaled)
    optimizer = build(node, "optim", parameters, **chosen)
    if not isinstance(optimizer, Optimizer):
        raise UserError(
            "optim._target_", f"{node['_target_']} is no torch optimizer", "name one that is"
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise UserError(
            "optim._target_",
            f"{node['_target_']} evaluates the loss several times an update, which is not possible",
            "use an optimizer that works from one gradient, e.g. torch.optim.AdamW",
        )
    return optimizer


def _implementation(
    target: Any, given: Mapping[str, Any], device: torch.device, scaled: bool
) -> dict[str, bool]:
    if any(given.get(name) is not None for name in ("fused", "foreach")):
        return {}
    try:
        known = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
    safe = not (scaled and _keeps_unset_momentum(target))
    if "fused" in known and device.type in _fused_devices(target) and safe:
        return {"fused": True}
    return {"foreach": True} if "foreach" in known else {}


def _fused_devices(target: Any) -> tuple[str, ...]:
    """Where torch has a fused kernel for this optimizer; other libraries' `fused` is left alone."""
    if not str(getattr(target, "__module__", "")).startswith("torch.optim"):
        return ()
    return ("cpu",) if target is torch.optim.Adagrad else ("cpu", "cuda")


def _keeps_unset_momentum(target: Any) -> bool:
    """Fused SGD allocates its momentum without setting it, trusting the first update to do so."""
    return inspect.isclass(target) and issubclass(target, torch.optim.SGD)


def skips_itself(optimizer: Optimizer) -> bool:
    """Whether the optimizer reads from the device that a GradScaler found an overflow."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
