"""A small training to measure, and what it needs by hand."""

import contextlib
from dataclasses import fields

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sweeper.measure.step_memory import measure_step
from sweeper.record import MemoryParts

# By hand, fp32: (100 x 200 + 200 + 200 x 10 + 10) x 4 bytes.
PARAMETERS = 88_840
# AdamW: two moments a parameter, and one scalar step count for each of the 4 tensors.
OPTIMIZER = 2 * PARAMETERS + 4 * 4
# Batch 4096. The peak is in the backward of ReLU: its saved output, the gradient that comes in and
# the gradient that goes out, 4096 x 200 x 4 bytes each; the second layer's gradients exist.
ACTIVATIONS = 3 * 4096 * 200 * 4
GRADIENTS = (200 * 10 + 10) * 4
DATA = 4096 * 100 * 4


def total(parts: MemoryParts) -> int:
    return sum(getattr(parts, f.name) or 0 for f in fields(MemoryParts))


class Training:
    """A step of `model` on `x` with AdamW, and the tensors that persist."""

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        *,
        accumulation: int = 1,
        bf16: bool = False,
        set_to_none: bool = True,
    ) -> None:
        self.model, self.x = model, x
        self.accumulation, self.bf16, self.set_to_none = accumulation, bf16, set_to_none
        self.optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        self.step()

    def step(self) -> None:
        for micro in range(self.accumulation):
            last = micro == self.accumulation - 1
            ddp = isinstance(self.model, DistributedDataParallel) and not last
            with self.model.no_sync() if ddp else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                    loss = self.model(self.x).float().pow(2).mean()
                loss.backward()
                del loss
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.set_to_none)

    def persistent(self) -> dict[str, list[Tensor]]:
        parameters = list(self.model.parameters())
        state = self.optimizer.state.values()
        return {
            "parameters": [*parameters, *self.model.buffers()],
            "gradients": [p.grad for p in parameters if p.grad is not None],
            "optimizer": [v for s in state for v in s.values() if isinstance(v, Tensor)],
        }

    def measure(self) -> tuple[int, MemoryParts]:
        return measure_step(self.step, self.persistent, [self.x])


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))
