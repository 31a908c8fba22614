"""Held-out samples are counted once, however many ranks share them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing import spawn

from sweeper.data.evaluation import evaluation_batches
from sweeper.data.keyed import Keys
from sweeper.models.objective import Batch, LossSum

SAMPLES = 10


class Squares:
    def __len__(self) -> int:
        return SAMPLES

    def items(self, indices: Tensor) -> Batch:
        return {"square": indices.double().square()}


class Keyed:
    def sample(self, items: Batch, keys: Keys) -> Batch:
        return {**items, "noise": keys.uniform("noise")}

    def weight(self, batch: Batch) -> int:
        return len(batch["square"])

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        return LossSum(batch["square"].sum(), {})


def batches(rank: int, world_size: int, batch: int, samples: int = SAMPLES) -> list[Batch]:
    found = evaluation_batches(Squares(), Keyed(), 0, rank, world_size, batch, samples, "cpu")
    return [built for built, weight in found if weight == len(built["square"])]


def evaluate(rank: int, world_size: int, folder: str) -> None:
    """One of the ranks: sums its own batches, then adds up over all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    total = torch.zeros(3, dtype=torch.float64)
    for built, weight in evaluation_batches(
        Squares(), Keyed(), 0, rank, world_size, batch=2, samples=SAMPLES, device="cpu"
    ):
        loss = Keyed().loss(nn.Identity(), built).total
        total += torch.stack([loss, torch.tensor(weight), torch.tensor(1)])
    counts = [torch.zeros_like(total) for _ in range(world_size)]
    dist.all_gather(counts, total)
    torch.save(torch.stack(counts), f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def test_ten_samples_on_four_ranks_count_ten_and_nothing_hangs(tmp_path: Path) -> None:
    spawn(evaluate, args=(4, str(tmp_path)), nprocs=4)
    for rank in range(4):
        table = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        assert table[:, 0].sum().item() == sum(i * i for i in range(10))
        assert table[:, 1].tolist() == [3, 3, 2, 2]  # 10 in all, not 12
        assert table[:, 2].tolist() == [2, 2, 1, 1]  # batches: not the same number on every rank


@pytest.mark.parametrize(("world_size", "batch"), [(1, 3), (4, 2), (16, 1)])
def test_draws_are_the_same_for_every_split(world_size: int, batch: int) -> None:
    (whole,) = batches(0, 1, SAMPLES)
    parts = [built for rank in range(world_size) for built in batches(rank, world_size, batch)]
    for name in whole:
        assert torch.equal(torch.cat([part[name] for part in parts]), whole[name])
    expected = Keys(0, -1, torch.arange(SAMPLES)).uniform("noise")
    assert torch.equal(whole["noise"], expected)


def test_no_more_samples_are_used_than_asked_for_or_there_are() -> None:
    assert [len(b["square"]) for b in batches(0, 1, 4, samples=6)] == [4, 2]
    assert [len(b["square"]) for b in batches(0, 1, 8, samples=1000)] == [8, 2]
    assert batches(0, 1, 8, samples=0) == []
