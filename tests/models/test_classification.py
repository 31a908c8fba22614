"""The classifier and its objective."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sweeper.data.keyed import Keys
from sweeper.errors import UserError
from sweeper.models.classification import Classification
from sweeper.models.classifier import Classifier


class Fixed(nn.Module):
    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, image: Tensor) -> Tensor:
        return self.logits


def small(**changes: int) -> Classifier:
    sizes = {"input_size": 8, "patch_size": 2, "in_channels": 1, "width": 16, "depth": 3}
    return Classifier(**{**sizes, "num_classes": 5, **changes})


def test_loss_is_the_sum_of_cross_entropies_and_right_answers_are_counted() -> None:
    # Probabilities 1/2, 1/4, 1/4 for each of two samples.
    model = Fixed(torch.tensor([[2.0, 1.0, 1.0]] * 2).log())
    batch = {"image": torch.zeros(2, 1, 1, 1), "label": torch.tensor([0, 2])}
    objective = Classification()
    result = objective.loss(model, batch)
    assert result.total.item() == pytest.approx(math.log(2) + math.log(4))
    assert result.metrics["correct"].item() == 1
    assert objective.weight(batch) == 2


def test_label_smoothing_spreads_its_share_over_all_classes() -> None:
    model = Fixed(torch.tensor([[2.0, 1.0, 1.0]]).log())
    batch = {"image": torch.zeros(1, 1, 1, 1), "label": torch.tensor([0])}
    expected = 0.7 * math.log(2) + 0.3 * (math.log(2) + 2 * math.log(4)) / 3
    total = Classification(label_smoothing=0.3).loss(model, batch).total
    assert total.item() == pytest.approx(expected)


def test_loss_is_float32_whatever_the_model_returns() -> None:
    model = Fixed(torch.zeros(1, 3, dtype=torch.bfloat16))
    batch = {"image": torch.zeros(1, 1, 1, 1), "label": torch.tensor([0])}
    total = Classification().loss(model, batch).total
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(math.log(3), rel=1e-6)


def test_labels_the_model_does_not_know_are_refused() -> None:
    keys = Keys(0, 0, torch.arange(2))
    items = {"image": torch.zeros(2, 1, 1, 1), "label": torch.tensor([0, 7])}
    with pytest.raises(UserError, match=r"label 7, but there are 5 classes"):
        Classification(num_classes=5).sample(items, keys)
    with pytest.raises(UserError, match="label -1"):
        Classification(num_classes=5).sample({**items, "label": torch.tensor([0, -1])}, keys)
    assert Classification().sample(items, keys) is items


def test_classifier_trains_all_its_parameters() -> None:
    model = small()
    logits = model(torch.randn(4, 1, 8, 8))
    assert logits.shape == (4, 5)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_a_sample_s_logits_do_not_depend_on_its_batch() -> None:
    model, image = small(), torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(model(image)[1:2], model(image[1:2]))


def test_impossible_sizes_are_refused() -> None:
    for changes, key in (
        ({"patch_size": 3}, "model.patch_size"),
        ({"width": 12}, "model.groups"),
    ):
        with pytest.raises(UserError) as caught:
            small(**changes)
        assert caught.value.key == key
    with pytest.raises(UserError, match="the model takes"):
        small()(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UserError, match="label_smoothing"):
        Classification(label_smoothing=2)
