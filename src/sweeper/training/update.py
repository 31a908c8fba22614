"""The update: what happens to the weights once a step's gradients are complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer

from sweeper.training.schedule import Schedule


@dataclass(frozen=True)
class UpdateResult:
    """What one update did.

    Attributes:
        grad_norm: 0-d, 2-norm of the gradient before clipping; None where it is not clipped.
        skipped: float16 gradients overflowed and the weights stayed; None where that cannot be. A
            0-d bool tensor where only the device knows.
        lr: the first parameter group's learning rate; a 0-d tensor where only the device knows.
    """

    grad_norm: Tensor | None
    skipped: Tensor | bool | None
    lr: Tensor | float


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """0-d float32: the 2-norm over all gradients, summed in float32 whatever their dtype."""
    if not gradients:
        return torch.zeros(())
    norms = torch._foreach_norm(gradients, 2.0, dtype=torch.float32)
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


class Update:
    """Unscales, clips, updates, moves the schedule on, and empties the gradients.

    Where an overflow of float16 is known on the host, a skipped update simply does not move the
    schedule. A fused optimizer on CUDA skips by itself, without the host; then updates are counted
    on the device and the learning rate is read there from a table, so that the host never waits.

    Args:
        optimizer: what updates; its learning rates are the schedule's base.
        schedule: factor per update.
        total_steps: steps of the run.
        device: where the parameters live.
        scaler: for float16; None = gradients are not scaled.
        max_grad_norm: clip to this 2-norm; None = do not clip.
        keep_gradients: set gradients to zero instead of releasing them.
        count_on_device: the optimizer skips by itself, and the host is not to wait for the outcome.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        total_steps: int,
        device: torch.device,
        *,
        scaler: torch.amp.GradScaler | None = None,
        max_grad_norm: float | None = None,
        keep_gradients: bool = False,
        count_on_device: bool = False,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self._schedule = schedule
        self._max_grad_norm = max_grad_norm
        self._keep_gradients = keep_gradients
        self._parameters: list[nn.Parameter] = [
            p for group in optimizer.param_groups for p in group["params"]
        ]
        self._base_lrs = [float(group["lr"]) for group in optimizer.param_groups]
        self._stepped = False
        self._found_inf: Tensor | None = None
        self._updates: int | Tensor = 0
        self._skipped: int | Tensor = 0
        self._on_device = count_on_device
        if scaler is not None:
            optimizer.register_step_pre_hook(self._notice)
        if self._on_device:
            factors = [schedule.factor(step) for step in range(total_steps)]
            self._factors = torch.tensor(factors, dtype=torch.float32, device=device)
            self._updates = torch.zeros(1, dtype=torch.int64, device=device)
            self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    def _notice(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called before the optimizer's step, which GradScaler leaves out to skip on the host."""
        self._stepped = True
        self._found_inf = getattr(optimizer, "found_inf", None)

    def __call__(self) -> UpdateResult:
        lr = self._set_lr()
        grad_norm = self._clip()
        if self.scaler is None:
            self.optimizer.step()
            skipped: Tensor | bool | None = None
        else:
            skipped = self._scaled_step(self.scaler)
        self._count(skipped)
        self.optimizer.zero_grad(set_to_none=not self._keep_gradients)
        return UpdateResult(grad_norm, skipped, lr)

    def _set_lr(self) -> Tensor | float:
        groups = self.optimizer.param_groups
        if isinstance(self._updates, Tensor):
            factor = self._factors.index_select(0, self._updates.clamp(max=len(self._factors) - 1))
            for group, base in zip(groups, self._base_lrs, strict=True):
                group["lr"] = factor[0] * base
        else:
            host_factor = self._schedule.factor(self._updates)
            for group, base in zip(groups, self._base_lrs, strict=True):
                group["lr"] = base * host_factor
        lr: Tensor | float = groups[0]["lr"]
        return lr

    def _clip(self) -> Tensor | None:
        if self._max_grad_norm is None:
            return None
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = gradient_norm([p.grad for p in self._parameters if p.grad is not None])
        clip_grads_with_norm_(self._parameters, self._max_grad_norm, norm)
        return norm

    def _scaled_step(self, scaler: torch.amp.GradScaler) -> Tensor | bool:
        self._stepped, self._found_inf = False, None
        scaler.step(self.optimizer)
        scaler.update()
        if self._found_inf is None:
            return not self._stepped
        return self._found_inf.reshape(()) > 0 if self._on_device else bool(self._found_inf > 0)

    def _count(self, skipped: Tensor | bool | None) -> None:
        if isinstance(skipped, Tensor):
            self._updates += (~skipped).long()
            self._skipped += skipped.long()
        elif skipped:
            self._skipped += 1
        else:
            self._updates += 1

    @property
    def updates(self) -> int:
        """Updates made so far. Waits for the device, as all of these properties may."""
        return int(self._updates)

    @property
    def skipped(self) -> int | None:
        """Updates not made because float16 overflowed; None without a GradScaler."""
        return None if self.scaler is None else int(self._skipped)

    @property
    def loss_scale(self) -> float | None:
        return None if self.scaler is None else self.scaler.get_scale()

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "updates": self.updates,
            "skipped": int(self._skipped),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        if isinstance(self._updates, Tensor) and isinstance(self._skipped, Tensor):
            self._updates.fill_(state["updates"])
            self._skipped.fill_(state["skipped"])
        else:
            self._updates, self._skipped = state["updates"], state["skipped"]
