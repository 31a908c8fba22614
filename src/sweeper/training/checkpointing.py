"""Gradient checkpointing: a block's activations are dropped and computed again in the backward.

After Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016. Only the block's `forward`
is replaced, so module names, state_dict keys and hooks stay as they are and no model knows of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from sweeper.training.blocks import Blocks


class CheckpointedForward:
    """Stands in for a block's `forward`.

    Non-reentrant: a block whose input needs no gradient still trains, and a block may be used
    several times under DistributedDataParallel. The random state is always kept and set back for
    the recomputation: a functional dropout cannot be seen from outside, and it costs microseconds.

    Attributes:
        calls: forward passes so far that were checkpointed.
    """

    def __init__(self, block: nn.Module) -> None:
        self.calls = 0
        self._forward = block.forward
        self._batch_norms = [m for m in block.modules() if isinstance(m, _BatchNorm)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        self.calls += 1
        options: dict[str, Any] = {"context_fn": self._contexts} if self._batch_norms else {}
        # All arguments in two positional ones: none is taken for one of checkpoint's own, and the
        # tensors among the keywords are seen, by which it knows whose random state to keep.
        return checkpoint(
            self._call, args, kwargs, use_reentrant=False, preserve_rng_state=True, **options
        )

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._forward(*args, **kwargs)

    def _contexts(self) -> tuple[Any, Any]:
        return contextlib.nullcontext(), self._statistics_kept()

    @contextlib.contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """BatchNorm counts a batch once: the recomputation leaves its running statistics alone."""
        kept = [(bn, bn.momentum, bn.num_batches_tracked) for bn in self._batch_norms]
        for bn in self._batch_norms:
            bn.momentum = 0.0
            bn.num_batches_tracked = None
        try:
            yield
        finally:
            for bn, momentum, count in kept:
                bn.momentum = momentum
                bn.num_batches_tracked = count


def checkpoint_blocks(blocks: Blocks) -> list[CheckpointedForward]:
    """Checkpoint each block from now on; the list tells which of them were in fact used."""
    wrapped = []
    for block in blocks.values():
        forward = CheckpointedForward(block)
        block.forward = forward
        wrapped.append(forward)
    return wrapped
