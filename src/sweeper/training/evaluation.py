"""The loss of held-out batches."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sweeper.models.objective import Batch, Objective
from sweeper.training.precision import Precision


@torch.no_grad()
def evaluate(
    model: nn.Module,
    objective: Objective,
    precision: Precision,
    batches: Iterable[tuple[Batch, int | Tensor]],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Sum the loss over `batches` with the model in evaluation mode; its mode is put back after.

    Returns:
        0-d float64 each: summed loss, and the units it sums over.
    """
    total = torch.zeros((), dtype=torch.float64, device=device)
    weight = torch.zeros((), dtype=torch.float64, device=device)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for batch, units in batches:
            with precision.context():
                total += objective.loss(model, batch).total
            weight += units
    finally:
        for module, training in modes.items():
            module.training = training
    return total, weight
