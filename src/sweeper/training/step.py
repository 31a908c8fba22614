"""The training step: forward and backward of each micro-batch, then one update.

The gradient is exactly that of the mean loss over all units (samples, tokens) of the global batch,
however it is split into ranks and micro-batches: each micro-batch's summed loss is divided by the
weight of the whole global batch, never by its own. Nothing here waits for the device, and the only
collectives are the gradients' and, where weights are tensors, one of the weight.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sweeper.models.objective import Batch, Objective
from sweeper.observer import Observer
from sweeper.training.checkpointing import CheckpointedForward
from sweeper.training.ema import Ema
from sweeper.training.evaluation import evaluate
from sweeper.training.parallel import synchronise_buffers
from sweeper.training.precision import Precision
from sweeper.training.randomness import (
    is_random,
    parity_of,
    random_state,
    seed_forward,
    set_random_state,
)
from sweeper.training.sighting import Sighting
from sweeper.training.update import Update

Weight = int | Tensor


@dataclass(frozen=True)
class StepResult:
    """What a step returns; tensors stay on the device and are detached.

    Attributes:
        loss: 0-d float32, this rank's summed loss over the weight of the global batch. Summed over
            ranks it is the mean loss of the global batch, before the update.
        grad_norm: 0-d, 2-norm of the global batch's gradient before clipping; None where it is not
            clipped.
        skipped: the update was left out because float16 gradients overflowed; None where that
            cannot be, a 0-d bool tensor where only the device knows.
        lr: the update's learning rate; a 0-d tensor where only the device knows.
    """

    loss: Tensor
    grad_norm: Tensor | None
    skipped: Tensor | bool | None
    lr: Tensor | float


class TrainStep:
    """One optimizer step; made by `build_step`.

    Attributes:
        model: the model itself.
        replica: what forward passes go through: the model, or its data-parallel wrapper.
        objective: binds the model to a loss and a batch.
        steps: steps done, skipped ones included.
    """

    def __init__(
        self,
        model: nn.Module,
        replica: nn.Module,
        objective: Objective,
        precision: Precision,
        update: Update,
        ema: Ema | None,
        checkpointed: Sequence[CheckpointedForward],
        observer: Observer,
        device: torch.device,
        seed: int,
        accumulation: int,
        group: dist.ProcessGroup | None,
    ) -> None:
        self.model, self.replica, self.objective = model, replica, objective
        self.precision, self.update, self.ema = precision, update, ema
        self.observer, self.device = observer, device
        self.steps = 0
        self._calls = 0  # of this process; `steps` goes on where an earlier one stopped
        self._checkpointed = checkpointed
        self._seed, self._accumulation, self._group = seed, accumulation, group
        self._rank = 0 if group is None else dist.get_rank(group)
        self._world_size = 1 if group is None else dist.get_world_size(group)
        self._parity = parity_of(model)
        self._draws = any(map(is_random, model.modules()))
        self._sighting: Sighting | None = None
        self._buckets: list[Tensor] = []

    def __call__(
        self,
        micro_batches: Sequence[Batch],
        weights: Sequence[Weight],
        *,
        global_weight: Weight | None = None,
    ) -> StepResult:
        """Train on one global batch; every rank calls it with its own part.

        Args:
            micro_batches: this rank's, in order, on the device; at least one.
            weights: units each micro-batch's loss sums over, as `Objective.weight` gives them.
            global_weight: units over all micro-batches of all ranks; None = add up `weights`, over
                ranks by one collective.

        Raises:
            ValueError: no micro-batch, or not one weight for each.
        """
        if not micro_batches or len(micro_batches) != len(weights):
            raise ValueError(
                f"a step needs at least one micro-batch and a weight for each, not "
                f"{len(micro_batches)} micro-batches and {len(weights)} weights"
            )
        inverse = self._inverse_weight(weights, global_weight)
        # The data-parallel wrapper averages over ranks, where the sum is wanted.
        factor = inverse * self._world_size
        total = torch.zeros((), device=self.device)
        for index, batch in enumerate(micro_batches):
            with self._gradients_sent(last=index == len(micro_batches) - 1):
                self.observer.phase("forward")
                loss = self._forward(batch, index)
                self.observer.phase("backward")
                scaled = loss * factor
                if self.update.scaler is not None:
                    scaled = self.update.scaler.scale(scaled)
                scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                total += loss.detach()
        self._remember_buckets()
        self.observer.phase("optimizer")
        done = self.update()
        if self.ema is not None:
            self.observer.phase("ema")
            self.ema.update(done.skipped)
        self.observer.phase("rest")
        self.steps += 1
        return StepResult(total * inverse, done.grad_norm, done.skipped, done.lr)

    def _inverse_weight(
        self, weights: Sequence[Weight], global_weight: Weight | None
    ) -> float | Tensor:
        if global_weight is None:
            global_weight = sum(weights)
            if self._group is not None:
                self.observer.phase("communication")
                # Filled on the device: a copy of a host's number would wait for all earlier work.
                shared = torch.zeros((), dtype=torch.float64, device=self.device) + global_weight
                dist.all_reduce(shared, group=self._group)
                global_weight = shared
        if isinstance(global_weight, Tensor):
            weight = global_weight.to(self.device, torch.float32, non_blocking=True)
            # A batch without any unit, such as one of padding alone, has loss 0, not 0 / 0.
            return (weight > 0) / weight.clamp(min=torch.finfo(torch.float32).tiny)
        if global_weight <= 0:
            raise ValueError(f"the global batch has weight {global_weight}")
        return 1 / global_weight

    def _gradients_sent(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients travel once a step, with the last micro-batch."""
        if isinstance(self.replica, DistributedDataParallel) and not last:
            return self.replica.no_sync()
        return contextlib.nullcontext()

    def _forward(self, batch: Batch, index: int) -> Tensor:
        watch: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        first = self._sighting is None
        if self._sighting is None:
            watch = self._sighting = Sighting()
        if first or self._draws:
            seed_forward(self._seed, self.steps, self._rank, index, self.device)
        with self.precision.context(), watch:
            loss = self.objective.loss(self.replica, batch).total.float()
        self._draws = self._draws or self._sighting.draws
        return loss

    def _remember_buckets(self) -> None:
        """Gradients may live in the wrapper's buckets, which the second step gives their form."""
        self._calls += 1
        if self._calls == 2 and isinstance(self.replica, DistributedDataParallel):
            views = [p.grad for p in self.model.parameters() if p.grad is not None]
            if self.replica.gradient_as_bucket_view:
                storages = {v.untyped_storage().data_ptr(): v for v in views}
                self._buckets = [view.detach() for view in storages.values()]

    def evaluate(self, batches: Iterable[tuple[Batch, Weight]]) -> tuple[Tensor, Tensor]:
        """The loss of held-out batches under the weights as they are, not their average.

        Every rank calls it, with any number of batches of its own. Gradients, random state and
        running statistics are left alone.

        Returns:
            0-d float64 each: this rank's summed loss, and the units it sums over. Add both up over
            ranks; their quotient is the mean loss.
        """
        if self._group is not None:
            synchronise_buffers(self.model, self._group)
        # The model itself, not its wrapper: ranks may have different numbers of batches.
        return evaluate(self.model, self.objective, self.precision, batches, self.device)

    def describe(self) -> dict[str, Any]:
        """What was asked and what was done: fields of `record.Numerics`.

        What is seen in a forward pass is null before the first step.
        """
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        sizes: Counter[torch.dtype] = Counter()
        for parameter in trainable:
            sizes[parameter.dtype] += parameter.numel()
        used = sum(block.calls > 0 for block in self._checkpointed)
        on_cuda = self.device.type == "cuda"
        seen = self._sighting
        return {
            "precision": self.precision.name,
            "parameter_dtype": str(sizes.most_common(1)[0][0]).removeprefix("torch."),
            "compute_dtype": None if seen is None else seen.compute_dtype,
            "autocast": self.precision.autocast,
            "grad_scaler": self.update.scaler is not None and self.update.scaler.is_enabled(),
            "tf32": on_cuda and torch.backends.cuda.matmul.allow_tf32,
            "attention": None if seen is None else seen.attention,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "parity": "rng" if self._parity == "exact" and self._draws else self._parity,
            "accumulation": self._accumulation,
            "checkpointed_blocks": len(self._checkpointed) if seen is None else used,
            "parameters": sizes.total(),
        }

    def persistent_tensors(self) -> dict[str, list[Tensor]]:
        """What stays in memory, by component; tensors of one list may share a storage.

        `parameters` holds the model's buffers too. Gradients are there between a backward and the
        end of the step; where they live in communication buckets, these stay and count as theirs.
        `buckets` is what buckets take beside the gradients, where torch lets them be seen.
        """
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        state = self.update.optimizer.state.values()
        return {
            "parameters": [*parameters, *self.model.buffers()],
            "gradients": [*gradients, *self._buckets],
            "optimizer": [v for entry in state for v in entry.values() if isinstance(v, Tensor)],
            "ema": [] if self.ema is None else list(self.ema.average),
            "buckets": [],
        }

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on; holds the tensors themselves, not copies."""
        return {
            "steps": self.steps,
            "draws": self._draws,
            "model": self.model.state_dict(),
            "update": self.update.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "random": random_state(self.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken; on the CPU bit for bit."""
        self.steps, self._draws = state["steps"], state["draws"]
        self.model.load_state_dict(state["model"])
        self.update.load_state_dict(state["update"])
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        set_random_state(state["random"], self.device)
