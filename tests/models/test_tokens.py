"""The language model's objective: what counts, and what padding does not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sweeper.data.keyed import Keys
from sweeper.models.tokens import TokenPrediction

PAD = -100
VOCABULARY = 8


class Successor(nn.Module):
    """Gives the successor of each token `odds` times the weight of any other token."""

    def __init__(self, odds: float) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.tensor(odds))

    def forward(self, tokens: Tensor) -> Tensor:
        right = nn.functional.one_hot((tokens + 1) % VOCABULARY, VOCABULARY)
        return right * self.odds.log()


def test_input_and_target_are_one_place_apart() -> None:
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, PAD, PAD]])
    batch = TokenPrediction().sample({"tokens": tokens}, Keys(0, 0, torch.arange(2)))
    assert batch["input"].tolist() == [[1, 2, 3], [5, 6, 0]]
    assert batch["target"].tolist() == [[2, 3, 4], [6, PAD, PAD]]


def test_padding_has_no_weight_and_no_loss() -> None:
    objective = TokenPrediction()
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, PAD, PAD]])
    batch = objective.sample({"tokens": tokens}, Keys(0, 0, torch.arange(2)))
    weight = objective.weight(batch)
    assert isinstance(weight, Tensor)
    assert weight.item() == 4
    result = objective.loss(Successor(odds=7.0), batch)
    # Each of the four targets is right: 7 against seven others of weight 1.
    assert result.total.item() == pytest.approx(4 * math.log(2))
    result.total.backward()


def test_a_batch_of_padding_weighs_nothing() -> None:
    objective = TokenPrediction(ignore_index=7)
    batch = objective.sample({"tokens": torch.full((2, 3), 7)}, Keys(0, 0, torch.arange(2)))
    assert objective.weight(batch).item() == 0
    assert objective.loss(Successor(odds=2.0), batch).total.item() == 0


def test_unequal_parts_add_up_to_the_whole() -> None:
    # Token counts 5, 10, 20 and 3: weighting the parts equally would give another loss.
    objective = TokenPrediction()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (4, 21), generator=generator)
    for row, count in enumerate((5, 10, 20, 3)):
        tokens[row, count + 1 :] = PAD
    batch = objective.sample({"tokens": tokens}, Keys(0, 0, torch.arange(4)))
    model = Successor(odds=3.0)
    whole = objective.loss(model, batch).total / objective.weight(batch)
    parts = [{name: value[row : row + 1] for name, value in batch.items()} for row in range(4)]
    total = sum(objective.loss(model, part).total for part in parts)
    assert sum(int(objective.weight(part)) for part in parts) == 38
    torch.testing.assert_close(total / 38, whole)
