"""What a forward pass in fact computes, seen while it runs.

A label such as "amp" says what was asked. This sees the operations that reach the device: the dtype
of the matrix products, the attention kernel, and whether random numbers are drawn.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# Operations that tell which kernel scaled dot product attention has chosen.
_KERNELS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "_safe_softmax": "math",  # made of several operations, this one of which is its alone
}


class Sighting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Sees all operations while entered as a context; slows them, so it is for one forward pass.

    Attributes:
        draws: an operation drew random numbers.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.draws = False
        self._flops: Counter[torch.dtype] = Counter()
        self._kernels: set[str] = set()

    @property
    def compute_dtype(self) -> str | None:
        """Dtype in which most of the floating-point operations of matrix products were done."""
        if not self._flops:
            return None
        return str(self._flops.most_common(1)[0][0]).removeprefix("torch.")

    @property
    def attention(self) -> str | None:
        """Kernels of scaled dot product attention, joined by "+"; None where it was not called."""
        return "+".join(sorted(self._kernels)) or None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        kernel = _KERNELS.get(func.overloadpacket.__name__)
        if kernel is not None:
            self._kernels.add(kernel)
        if torch.Tag.nondeterministic_seeded in func.tags and _drops(func, args, kwargs):
            self.draws = True
        count = flop_registry.get(func.overloadpacket)
        first = result[0] if isinstance(result, tuple | list) else result
        if count is not None and isinstance(first, Tensor):
            self._flops[first.dtype] += count(*args, **kwargs, out_val=result)
        return result


def _drops(func: Any, args: Any, kwargs: Any) -> bool:
    """A seeded operation draws, unless it is one with dropout and the dropout is 0."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
            return bool(given > 0)
    return True
