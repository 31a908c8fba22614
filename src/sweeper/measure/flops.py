"""Floating point operations of a step, and how much of the hardware's peak they are.

A multiplication and an addition count as two. Counted are matrix products, convolutions and
attention, as `torch.utils.flop_counter` does, whose formulas are used; pointwise work is not, here
nor in the published MFU figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from sweeper.measure.peaks import peak_flops
from sweeper.record import Time

_aten = torch.ops.aten


@dataclass(frozen=True)
class Flops:
    """FLOPs of one step of one rank.

    Attributes:
        executed: all that ran. Checkpointing runs blocks twice and both count; for HFU.
        recomputed: the part that ran in the backward to get dropped values back: of checkpointed
            blocks, and of the scores in fused attention.
    """

    executed: int
    recomputed: int

    @property
    def useful(self) -> int:
        """What the mathematics needs, everything computed once; for MFU."""
        return self.executed - self.recomputed


def count_flops(step: Callable[[], object]) -> Flops:
    """Run one step and count.

    Recomputation is recognised by where it runs: forward operators inside a backward, with
    gradients on. So both kinds of FLOPs come from the same step, whatever is checkpointed.
    """
    counter = _Counter()
    with counter:
        step()
    return Flops(executed=counter.executed, recomputed=counter.recomputed)


def share_of_peak(
    flops_per_step: float, step_time_s: float, peak_flops: float | None, devices: int = 1
) -> float | None:
    """MFU or HFU, by which FLOPs are given; None where the peak is not known.

    Args:
        flops_per_step: over all devices.
        step_time_s: of the slowest rank.
        peak_flops: of one device, at the dtype that the matrix products use.
    """
    if peak_flops is None:
        return None
    return flops_per_step / step_time_s / (peak_flops * devices)


class FlopsMeter:
    """Counts one rank's FLOPs in one step outside the measured window.

    While operators are watched, autograd takes other, equally exact paths, so that results differ
    in rounding. It should therefore be the same step of every run that is compared, such as the
    last.

    Attributes:
        flops: of the counted step; None before it.
    """

    def __init__(self) -> None:
        self.flops: Flops | None = None

    def count(self, step: Callable[[], object]) -> None:
        """Do one step and count; holds no tensor longer than its operator does."""
        self.flops = count_flops(step)

    def complete(self, time: Time, device_name: str | None, dtype: str | None) -> Time:
        """The rank's times with its FLOPs, and the shares of its device's peak where one is known.

        Args:
            time: of this rank; filled in.
            device_name: of a GPU, as CUDA gives it.
            dtype: of the matrix products; `tf32` where float32 products are rounded to it.
        """
        if self.flops is None:
            return time
        time.flops_per_step = float(self.flops.useful)
        time.hardware_flops_per_step = float(self.flops.executed)
        if time.step_time_s is not None and device_name is not None and dtype is not None:
            peak = peak_flops(device_name, dtype)
            time.mfu = share_of_peak(time.flops_per_step, time.step_time_s, peak)
            time.hfu = share_of_peak(time.hardware_flops_per_step, time.step_time_s, peak)
        return time


class _Counter(TorchDispatchMode):
    supports_higher_order_operators = True  # flex attention is one

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no type for it
        self.executed = 0
        self.recomputed = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        whole = operator not in _FORMULAS and isinstance(func, OpOverload)
        if whole and func is not torch.ops.prim.device.default:
            with self:  # without autograd some operators arrive whole, such as linear
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        formula = _FORMULAS.get(operator)
        if formula is not None:
            flops = int(formula(*args, **kwargs, out_val=out))
            self.executed += flops
            if torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled():
                self.recomputed += flops
            elif operator in _FUSED_ATTENTION_BACKWARD:
                self.recomputed += flops // 5  # the scores are one of its five matrix products
        return out


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    flops: int = sdpa_flop_count(query.shape, key.shape, value.shape)  # type: ignore[no-untyped-call]  # torch's gap
    return flops


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> int:
    shapes = (grad.shape, query.shape, key.shape, value.shape)
    flops: int = sdpa_backward_flop_count(*shapes)  # type: ignore[no-untyped-call]  # torch's gap
    return flops


def _convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: list[bool],
    **kwargs: Any,
) -> int:
    """Each gradient costs what the forward did.

    Every weight meets every position of the output once (of the input, where transposed). torch's
    own formula takes the gradient of a grouped weight for one without groups.
    """
    positions = x if transposed else grad
    forward = 2 * positions.numel() * weight[0].numel()
    return forward * (bool(output_mask[0]) + bool(output_mask[1]))


_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    _aten.convolution_backward: _convolution_backward,
    # What scaled dot product attention becomes on a CPU.
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}

_FUSED_ATTENTION_BACKWARD = frozenset(
    operator
    for operator in _FORMULAS
    if "attention" in str(operator) and str(operator).endswith("backward")
)
