"""The weight of the whole batch: known from the samples, or added up over the ranks."""

from __future__ import annotations

import pytest
import torch

from sweeper.data.loader import StepBatch
from sweeper.errors import UserError
from sweeper.global_weight import GlobalWeight
from sweeper.ranks import Ranks

CPU = torch.device("cpu")


class TwoRanks(Ranks):
    """Of which the other one says what it is told to."""

    other = True

    @property
    def count(self) -> int:
        return 2

    def all_true(self, value: bool, device: torch.device) -> bool:
        return value and self.other


def batch(samples: list[int], weights: list[int | torch.Tensor]) -> StepBatch:
    found = StepBatch(0)
    for size, weight in zip(samples, weights, strict=True):
        found.add({"x": torch.zeros(size, 2)}, weight)
    return found


def test_samples_are_known_without_asking() -> None:
    weight = GlobalWeight(TwoRanks(None), CPU, global_batch=16)
    assert weight(batch([4, 4], [4, 4])) == 16
    assert weight(batch([5, 3], [5, 3])) == 16


def test_other_ints_are_known_of_the_own_share_alone() -> None:
    """Two ranks with padded lengths 5 and 10, 20 and 3: neither knows the other's total."""
    for weights in ([5, 10], [20, 3]):
        assert GlobalWeight(TwoRanks(None), CPU, 16)(batch([4, 4], list(weights))) is None


def test_ranks_that_disagree_all_ask() -> None:
    ranks = TwoRanks(None)
    ranks_weight = GlobalWeight(ranks, CPU, 16)
    object.__setattr__(ranks, "other", False)
    assert ranks_weight(batch([4, 4], [4, 4])) is None
    object.__setattr__(ranks, "other", True)
    assert ranks_weight(batch([4, 4], [4, 4])) is None  # once for all


def test_an_objective_that_changes_its_mind_is_refused() -> None:
    weight = GlobalWeight(TwoRanks(None), CPU, 16)
    weight(batch([4, 4], [4, 4]))
    with pytest.raises(UserError, match=r"model\.objective"):
        weight(batch([4, 4], [5, 10]))


def test_one_rank_has_the_whole_batch() -> None:
    weight = GlobalWeight(Ranks(None), CPU, 8)
    assert weight(batch([4, 4], [5, 10])) == 15
    assert weight(batch([4, 4], [5, torch.tensor(10)])) is None
