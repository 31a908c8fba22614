"""Data parallelism: every rank holds the whole model, and gradients are averaged over ranks."""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sweeper.config import ParallelConfig
from sweeper.place import Place
from sweeper.training.randomness import has_batch_norm
from sweeper.training.rendezvous import open_store


def init_ranks(
    place: Place, device: torch.device, timeout_s: float = 600.0
) -> dist.ProcessGroup | None:
    """Join the run's process group: gloo on the CPU, NCCL on CUDA. Call it before any CUDA call.

    Args:
        place: this rank.
        device: kind of device that ranks compute on; on CUDA the rank takes `place.local_rank`.
        timeout_s: how long to wait for other ranks, when joining and in any collective later.

    Returns:
        The group, or None for a run of one rank, which needs none.

    Raises:
        TimeoutError: rank 0 did not answer in time.
    """
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(place.local_rank)
    if place.world_size == 1:
        return None
    if not cuda and place.ranks_per_node == place.world_size:
        _gloo_on_loopback()
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=open_store(place, timeout_s),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=timeout_s),
        # Connects at once, so that NCCL's buffers belong to the set-up and not to a step.
        device_id=torch.device("cuda", place.local_rank) if cuda else None,
    )
    return dist.group.WORLD


def close_ranks(group: dist.ProcessGroup | None, *, orderly: bool = True) -> None:
    """Leave the process group.

    Args:
        group: what `init_ranks` returned.
        orderly: first wait for all ranks, so that rank 0 does not take the store away from ranks
            that still use it; false where a rank has failed and others may never come.
    """
    if group is None:
        return
    if orderly:
        dist.barrier(group)
    dist.destroy_process_group(group)


def _gloo_on_loopback() -> None:
    """Without it gloo takes the address that the host's name resolves to, if it resolves at all."""
    with contextlib.suppress(OSError):
        names = {name for _, name in socket.if_nameindex()}
        loopback = next((name for name in ("lo", "lo0") if name in names), None)
        if loopback is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def wrap(model: nn.Module, config: ParallelConfig, group: dist.ProcessGroup) -> nn.Module:
    """The model whose backward averages gradients over ranks; all ranks get rank 0's weights.

    The gradient of the last backward outside `no_sync` is the mean over ranks of what each rank has
    accumulated.
    """
    replica = DistributedDataParallel(
        model,
        process_group=group,
        bucket_cap_mb=config.bucket_cap_mib,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        find_unused_parameters=config.find_unused_parameters,
    )
    # Running statistics are the only buffers that a forward changes; sending others is a waste.
    replica.broadcast_buffers = has_batch_norm(model)
    return replica


def synchronise_buffers(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Give every rank rank 0's running statistics. A collective: all ranks must call it."""
    if has_batch_norm(model):
        for buffer in model.buffers():
            dist.broadcast(buffer, group_src=0, group=group)
