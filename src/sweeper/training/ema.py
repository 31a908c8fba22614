"""The exponential moving average of the weights: average <- decay average + (1 - decay) weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

# Of temporary copies; a model's worth of them at once could be its peak.
CHUNK_BYTES = 2**26


class Ema:
    """Averages parameters, in float32 whatever their dtype: 8 bits would not hold the increments.

    Args:
        parameters: name -> trainable parameter.
        decay: in [0, 1).
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.decay = decay
        self._names = list(parameters)
        self._weights = [p.detach() for p in parameters.values()]
        self.average: list[Tensor] = [w.to(torch.float32, copy=True) for w in self._weights]
        self._chunks = self._split()
        self._short = any(w.dtype != torch.float32 for w in self._weights)

    @torch.no_grad()
    def update(self, skipped: Tensor | bool | None = None) -> None:
        """Move the average towards the weights, unless the step was skipped.

        Args:
            skipped: a 0-d bool tensor is honoured without asking the device for its value.
        """
        if skipped is True:
            return
        share = 1 - self.decay
        if isinstance(skipped, Tensor):
            # A share that only the device knows: a lerp with it would be a kernel a parameter.
            known = (~skipped).float() * share
            for part in self._chunks:
                away = torch._foreach_sub(self._full_weights(part), self.average[part])
                torch._foreach_mul_(away, known)
                torch._foreach_add_(self.average[part], away)
        elif self._short:
            torch._foreach_mul_(self.average, self.decay)
            torch._foreach_add_(self.average, self._weights, alpha=share)
        else:
            torch._foreach_lerp_(self.average, self._weights, share)

    def _full_weights(self, part: slice) -> list[Tensor]:
        weights = self._weights[part]
        return [w.float() for w in weights] if self._short else weights

    def _split(self) -> list[slice]:
        """Of the parameters: as few as possible, with copies of at most CHUNK_BYTES each."""
        parts, first, size = [], 0, 0
        for index, average in enumerate(self.average):
            size += average.nbytes
            if size >= CHUNK_BYTES:
                parts.append(slice(first, index + 1))
                first, size = index + 1, 0
        return [*parts, slice(first, len(self.average))] if size else parts

    def state_dict(self) -> dict[str, Any]:
        return dict(zip(self._names, self.average, strict=True))

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, average in zip(self._names, self.average, strict=True):
            average.copy_(state[name])
