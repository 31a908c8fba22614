"""Which samples a step sees, and how ranks share them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from sweeper.data.sampler import GlobalSampler, rank_share
from sweeper.errors import UserError


def steps(sampler: GlobalSampler, count: int) -> list[list[int]]:
    return [sampler.indices(step).tolist() for step in range(count)]


def test_epochs_follow_each_other_without_gaps_or_repeats() -> None:
    shown = [i for batch in steps(GlobalSampler(length=10, batch=4, seed=0), 5) for i in batch]
    assert sorted(shown[:10]) == list(range(10))
    assert sorted(shown[10:]) == list(range(10))
    assert shown[:10] != shown[10:]


def test_a_batch_is_a_function_of_the_step_alone() -> None:
    in_order = steps(GlobalSampler(length=10, batch=4, seed=0), 20)
    sampler = GlobalSampler(length=10, batch=4, seed=0)
    assert [sampler.indices(step).tolist() for step in reversed(range(20))] == in_order[::-1]


def test_seeds_give_other_orders() -> None:
    a, b = (GlobalSampler(length=100, batch=50, seed=s).indices(0) for s in (0, 1))
    assert not torch.equal(a, b)


def test_a_batch_larger_than_the_data_set_holds_several_epochs() -> None:
    shown = steps(GlobalSampler(length=4, batch=10, seed=0), 2)
    assert [len(s) for s in shown] == [10, 10]
    assert Counter(i for batch in shown for i in batch) == dict.fromkeys(range(4), 5)


def test_epoch_of_60000_in_batches_of_128_ends_within_step_469() -> None:
    sampler = GlobalSampler(length=60_000, batch=128, seed=0)
    whole = torch.cat([sampler.indices(step) for step in range(468)])
    assert len(whole.unique()) == len(whole) == 468 * 128
    last = sampler.indices(468)
    assert len(last) == 128  # no short batch: its last 32 samples open the next epoch
    assert len(torch.cat([whole, last[:96]]).unique()) == 60_000


def test_ten_samples_over_four_ranks_are_two_full_steps_an_epoch() -> None:
    sampler = GlobalSampler(length=10, batch=8, seed=0)
    seen: Counter[int] = Counter()
    for step in range(5):
        shares = [rank_share(sampler.indices(step), rank, 4) for rank in range(4)]
        assert [[len(part) for part in share] for share in shares] == [[2]] * 4
        seen.update(int(i) for share in shares for part in share for i in part)
        if step == 1:
            assert set(seen) == set(range(10))
    assert seen == dict.fromkeys(range(10), 4)  # 40 shown: every sample equally often


@pytest.mark.parametrize(
    ("batch", "world_size", "accumulation"), [(24, 3, 4), (10, 4, 1), (7, 2, 3)]
)
def test_shares_are_contiguous_and_lose_nothing(
    batch: int, world_size: int, accumulation: int
) -> None:
    indices = torch.randperm(batch)
    shares = [rank_share(indices, rank, world_size, accumulation) for rank in range(world_size)]
    assert torch.equal(torch.cat([torch.cat(share) for share in shares]), indices)
    for share, expected in zip(shares, np.array_split(indices.numpy(), world_size), strict=True):
        sizes = [len(part) for part in np.array_split(expected, accumulation)]
        assert [len(part) for part in share] == sizes


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        GlobalSampler(length=0, batch=1, seed=0)
    with pytest.raises(UserError, match=r"batch\.size"):
        GlobalSampler(length=1, batch=0, seed=0)
