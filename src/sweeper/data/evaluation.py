"""Held-out batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from sweeper.data.batch import Weight, build_batch, pin, to_device
from sweeper.data.dataset import Dataset
from sweeper.data.keyed import Keys
from sweeper.data.sampler import rank_share
from sweeper.models.objective import Batch, Objective

EVALUATION_STEP = -1  # the step that keys the draws of held-out batches


def evaluation_batches(
    dataset: Dataset,
    objective: Objective,
    seed: int,
    rank: int,
    world_size: int,
    batch: int,
    samples: int,
    device: torch.device | str,
) -> Iterator[tuple[Batch, Weight]]:
    """This rank's held-out batches and their weights; each sample is counted once over all ranks.

    The first `samples` items are used, or all where there are fewer. Draws are keyed by step -1, so
    every evaluation of a run, and of every split over ranks, sees the same. Nothing is padded:
    ranks may get different numbers of batches, or none, so the caller must call no collective
    inside the loop (a forward through DistributedDataParallel may be one), only after it.

    Args:
        dataset: the validation split.
        objective: draws and weighs.
        seed: the run's seed.
        rank: this rank.
        world_size: number of ranks.
        batch: samples per batch and rank; a rank's last batch may be smaller.
        samples: held-out samples over all ranks.
        device: where batches go.
    """
    device = torch.device(device)
    (share,) = rank_share(torch.arange(min(samples, len(dataset))), rank, world_size)
    for start in range(0, len(share), batch):
        keys = Keys(seed, EVALUATION_STEP, share[start : start + batch])
        built, weight = build_batch(dataset, objective, keys)
        if device.type == "cuda":
            built, weight = pin(built, weight)
        yield to_device(built, weight, device)
