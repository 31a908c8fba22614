"""Building a training step from the config: weights, precision, checkpointing, ranks, update."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from sweeper.config import Config
from sweeper.data.keyed import derive_seed
from sweeper.errors import UserError
from sweeper.instantiate import build
from sweeper.models.objective import Objective
from sweeper.observer import NullObserver, Observer
from sweeper.training.blocks import find_blocks
from sweeper.training.checkpointing import checkpoint_blocks
from sweeper.training.ema import Ema
from sweeper.training.optimizer import build_optimizer, skips_itself
from sweeper.training.parallel import wrap
from sweeper.training.precision import Support, resolve_precision
from sweeper.training.schedule import build_schedule
from sweeper.training.step import TrainStep
from sweeper.training.update import Update


def build_step(
    config: Config,
    device: torch.device,
    *,
    observer: Observer | None = None,
    process_group: dist.ProcessGroup | None = None,
    support: Support | None = None,
) -> TrainStep:
    """One training step of the config, ready to be called.

    Weights are drawn on the CPU from the config's seed alone, so that every variant, rank and kind
    of device starts from the same.

    Args:
        config: resolved and checked.
        device: where the step runs.
        observer: hears of phases; None = nobody does.
        process_group: what `init_ranks` returned; None = one rank.
        support: what the device can compute; None = ask torch.

    Raises:
        UserError: the model, objective, optimizer or schedule cannot be built, the device does not
            do the precision, or the blocks to checkpoint are not found.
    """
    precision = resolve_precision(config.precision, device, support)
    precision.apply()
    model, objective = _build_model(config)
    if any(tensor.device != device for tensor in (*model.parameters(), *model.buffers())):
        model.to(device)
    model.train()
    precision.cast(model)
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise UserError("model", "has no trainable parameters", "choose another model")

    blocks = find_blocks(model, config.ckpt.blocks) if config.ckpt.enabled else {}
    checkpointed = checkpoint_blocks(blocks)
    replica = model if process_group is None else wrap(model, config.parallel, process_group)

    scaler = torch.amp.GradScaler(device.type) if precision.scaler else None
    optimizer = build_optimizer(
        config.optim, list(trainable.values()), device, scaled=scaler is not None
    )
    update = Update(
        optimizer,
        build_schedule(config.lr, config.train.steps),
        config.train.steps,
        device,
        scaler=scaler,
        max_grad_norm=config.train.max_grad_norm,
        keep_gradients=_gradients_stay_in_buckets(config, process_group),
        count_on_device=scaler is not None and device.type == "cuda" and skips_itself(optimizer),
    )
    decay = config.train.ema_decay
    return TrainStep(
        model=model,
        replica=replica,
        objective=objective,
        precision=precision,
        update=update,
        ema=None if decay is None else Ema(trainable, decay),
        checkpointed=checkpointed,
        observer=observer or NullObserver(),
        device=device,
        seed=config.seed,
        accumulation=config.accum.steps,
        group=process_group,
    )


def _build_model(config: Config) -> tuple[nn.Module, Objective]:
    torch.manual_seed(derive_seed(config.seed, "weights"))
    model = build(config.model, "model")
    if not isinstance(model, nn.Module):
        raise UserError(
            "model._target_",
            f"{config.model['_target_']} makes a {type(model).__name__}, no torch module",
            "name a class of modules, or a function that returns one",
        )
    node = config.model.get("objective")
    if node is None:
        raise UserError("model.objective", "is missing", "name the loss: model.objective._target_")
    objective: Objective = build(node, "model.objective")
    return model, objective


def _gradients_stay_in_buckets(config: Config, group: dist.ProcessGroup | None) -> bool:
    """Whether gradients should be zeroed in place instead of released.

    Micro-batches before the last would allocate released gradients anew, beside the buckets. But a
    parameter that a step leaves unused must have no gradient at all; then they are released.
    """
    return (
        group is not None
        and config.accum.steps > 1
        and config.parallel.gradient_as_bucket_view
        and not config.parallel.find_unused_parameters
    )
