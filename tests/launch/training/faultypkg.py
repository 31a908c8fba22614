"""Parts of a training that go wrong at a chosen moment, on a chosen rank, for real.

`model.fault` is `moment:rank:what`, or empty. Moments: `setup`, `forward`, `backward` and
`optimizer` of the first step, `measure` (the forward pass of the fifth), `last` (the second
evaluation). A rank is a number or `all`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time

import torch
from torch import Tensor

from sweeper.models.classifier import Classifier
from sweeper.place import Place

_fault = ""
_passes = 0


def moment(name: str) -> None:
    if not _fault:
        return
    when, rank, what = _fault.split(":")
    if when != name or rank not in ("all", str(Place.from_environment().rank)):
        return
    if what == "oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 ...")
    if what == "raise":
        raise ValueError(f"rank {rank} cannot go on")
    if what == "exit":
        sys.exit(7)
    if what == "hang":
        time.sleep(600)
    if what == "full":  # this process can make no file larger
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        return
    os.kill(os.getpid(), getattr(signal, what))


class _BackwardMoment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        moment("backward")
        return gradient


class Faulty(Classifier):
    def __init__(self, fault: str, **arguments: int) -> None:
        super().__init__(**arguments)
        global _fault
        _fault = fault
        moment("setup")

    def forward(self, image: Tensor) -> Tensor:
        global _passes
        if torch.is_grad_enabled():
            _passes += 1
            moment("forward")
            if _passes == 5:
                moment("measure")
        elif _passes:
            moment("last")
        return _BackwardMoment.apply(super().forward(image))


class FaultyAdamW(torch.optim.AdamW):
    def step(self, closure: object = None) -> None:
        moment("optimizer")
        super().step(closure)
