"""The peak memory of one training step and its parts, measured beside the timed window."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from sweeper.measure.live import LiveBytes, Persistent
from sweeper.record import MemoryParts


def measure_step(
    step: Callable[[], None],
    persistent: Callable[[], Persistent],
    data: Sequence[Tensor] = (),
    device_type: str = "cpu",
) -> tuple[int, MemoryParts]:
    """Run one step and find its peak memory, by component.

    The step computes what it always computes, only slower: not a step to time, and one to run
    outside the window. Take a step after the first: before, the optimizer has no state.

    On a CPU the peak is the allocator's own, as the profiler hears of it, over the storages that
    were there before; so it holds what kernels take and give back within one operator. The
    components are those at the peak of the live storages.

    Args:
        step: does one whole training step.
        persistent: the tensors that exist at the moment it is called, by component: `parameters`
            (buffers with them), `gradients`, `optimizer`, `ema`, `buckets`, `data`; any of them may
            be missing. Called before the step, before the optimizer's step and after the step.
        data: the step's batch, where it exists before the step.
        device_type: cpu or cuda; tensors elsewhere are not counted.

    Returns:
        The peak in bytes, and its parts, which add up to it exactly. `activations_bytes` is what
        the step made and is none of the other components. `remainder_bytes` is what kernels need
        within an operator, what the optimizer needs for a moment, and tensors that were there
        before and are none of the components. On CUDA the peak is of live storages alone;
        `MemoryMeter.result` sets it beside the allocator's.
    """
    live = LiveBytes(device_type)
    first = persistent()
    live.tag(first)
    live.tag({"data": data})

    def before_optimizer(*_: Any) -> None:
        live.tag(persistent())  # gradients are complete, and not yet set to None
        live.in_optimizer = True

    def after_optimizer(*_: Any) -> None:
        live.in_optimizer = False

    def gradient(parameter: Tensor) -> None:
        if parameter.grad is not None:
            live.tag({"gradients": [parameter.grad]})

    with ExitStack() as hooks:
        changes = hooks.enter_context(_allocations(enabled=device_type == "cpu"))
        hooks.enter_context(live)
        hooks.callback(register_optimizer_step_pre_hook(before_optimizer).remove)
        hooks.callback(register_optimizer_step_post_hook(after_optimizer).remove)
        for parameter in first.get("parameters", ()):
            if parameter.requires_grad and parameter.is_leaf:
                handle = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    gradient  # torch has no type for the call
                )
                hooks.callback(handle.remove)
        del first  # holding the gradients would keep them alive through the step
        step()
        live.tag(persistent())
    parts = live.peak()
    storages_bytes = sum(parts.values())
    # The profiler does not hear of blocks given back that were taken before it began.
    changes += [(at, -size) for at, size in live.given_back]
    peak_bytes = max(storages_bytes, live.bytes_before() + _highest(changes))
    parts["remainder"] += peak_bytes - storages_bytes
    return peak_bytes, MemoryParts(**{f"{name}_bytes": size for name, size in parts.items()})


@contextmanager
def _allocations(enabled: bool) -> Iterator[list[tuple[int, int]]]:
    """(Unix ns, bytes) of all that the CPU allocator took (positive) and gave back.

    Filled in at the end; empty where not enabled, or where a profiler runs already.
    """
    changes: list[tuple[int, int]] = []
    if not enabled or torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # untyped
        yield changes
        return
    level = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "99"  # its notes would end up in the run's log
    try:
        with profile(profile_memory=True) as profiler:
            yield changes
    finally:
        if level is None:
            del os.environ["KINETO_LOG_LEVEL"]
        else:
            os.environ["KINETO_LOG_LEVEL"] = level
    changes += [
        (event.start_ns(), event.nbytes())
        for event in profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]


def _highest(changes: Sequence[tuple[int, int]]) -> int:
    now = highest = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        now += change
        highest = max(highest, now)
    return highest
