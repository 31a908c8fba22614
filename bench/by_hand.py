"""The bare training loop that `bench/instruments.py` compares with."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sweeper.config import Config, check
from sweeper.data.loader import Loader, StepBatch
from sweeper.data.sampler import GlobalSampler
from sweeper.instantiate import build
from sweeper.training.step import TrainStep


class ByHand:
    """The bare loop: one rank, one micro-batch a step.

    Args:
        step: whose model, optimizer and average it trains.
    """

    def __init__(self, config: Config, device: torch.device, step: TrainStep) -> None:
        self._step = step
        self._weights = [p.detach() for p in step.model.parameters() if p.requires_grad]
        self._average = [] if step.ema is None else step.ema.average
        self._decay, self._share = config.train.ema_decay, 1 / config.batch.size
        data = build(config.data, "data", split="train")
        self.loader = Loader(
            data,
            step.objective,
            GlobalSampler(len(data), check(config).global_batch, config.seed),
            config.seed,
            device=device,
        )
        self._losses: list[Tensor] = []

    def train(self, batches: Iterator[StepBatch], steps: int) -> None:
        model, objective = self._step.model, self._step.objective
        optimizer, precision = self._step.update.optimizer, self._step.precision
        for _ in range(steps):
            batch = next(batches)
            with precision.context():
                loss = objective.loss(model, batch.micro_batches[0]).total * self._share
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            optimizer.zero_grad()
            if self._decay is not None:
                torch._foreach_lerp_(self._average, self._weights, 1 - self._decay)
            self._losses.append(loss.detach())

    def losses(self) -> list[float]:
        return [float(loss) for loss in self._losses]
