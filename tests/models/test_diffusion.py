"""The diffusion objective: what its loss is made of, and what it draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from sweeper.data.keyed import Keys
from sweeper.errors import UserError
from sweeper.models.diffusion import Diffusion
from sweeper.models.dit import DiT
from sweeper.models.objective import Batch

CLASSES = 10


class Constant(nn.Module):
    """Returns the same (c_out, h, w) for every sample, so that its gradient is easy to read."""

    def __init__(self, channels: int, value: float = 0.1) -> None:
        super().__init__()
        self.output = nn.Parameter(torch.full((channels, 4, 4), value))

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        return self.output.expand(len(x), *self.output.shape)


def items(n: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(n, 1, 4, 4, generator=generator) * 2 - 1
    return {"image": image, "label": torch.arange(n) % CLASSES}


def batch(n: int = 64, step: int = 0, **arguments: Any) -> tuple[Diffusion, Batch]:
    objective = Diffusion(CLASSES, **arguments)
    return objective, objective.sample(items(n), Keys(0, step, torch.arange(n)))


def test_loss_is_noise_error_plus_bound() -> None:
    objective, drawn = batch(8)
    model = Constant(2)
    result = objective.loss(model, drawn)
    error = ((drawn["noise"] - 0.1) ** 2).mean(dim=(1, 2, 3)).sum()
    torch.testing.assert_close(result.metrics["mse"], error)
    torch.testing.assert_close(
        result.total.detach(), result.metrics["mse"] + result.metrics["bound"]
    )


def test_bound_weighs_timesteps_over_a_thousand() -> None:
    objective, drawn = batch(8, timesteps=250)
    result = objective.loss(Constant(2), drawn)
    expected = result.metrics["mse"] + 0.25 * result.metrics["bound"]
    torch.testing.assert_close(result.total.detach(), expected)


def test_bound_teaches_the_variance_alone() -> None:
    objective, drawn = batch(8)
    model = Constant(2)
    objective.loss(model, drawn).total.backward()
    assert model.output.grad is not None
    # The noise half gets the gradient of the squared error and nothing of the bound's.
    expected = (2 * (0.1 - drawn["noise"]) / 16).sum(0)
    torch.testing.assert_close(model.output.grad[:1], expected)
    assert model.output.grad[1:].abs().min() > 0


def test_without_learned_variance_the_loss_is_the_noise_error() -> None:
    objective, drawn = batch(8)
    result = objective.loss(Constant(1), drawn)
    assert set(result.metrics) == {"mse"}
    assert torch.equal(result.total.detach(), result.metrics["mse"])


def test_other_numbers_of_channels_are_refused() -> None:
    objective, drawn = batch(2)
    with pytest.raises(UserError, match="returns 3 channels for an image of 1"):
        objective.loss(Constant(3), drawn)


@pytest.mark.parametrize("v", [-30.0, 30.0])
def test_gradients_are_finite_at_every_timestep(v: float) -> None:
    objective, drawn = batch(64, timesteps=32)
    drawn["timestep"] = torch.arange(64) % 32
    drawn["schedule"] = objective.schedule[drawn["timestep"]]
    model = Constant(2, value=v)
    result = objective.loss(model, drawn)
    result.total.backward()
    assert result.total.isfinite()
    assert model.output.grad is not None
    assert model.output.grad.isfinite().all()


def test_draws_do_not_depend_on_how_a_batch_is_split() -> None:
    objective = Diffusion(CLASSES)
    whole = items(10)
    together = objective.sample(whole, Keys(0, 3, torch.arange(10)))
    for part in (slice(0, 3), slice(3, 10)):
        share = {name: value[part] for name, value in whole.items()}
        alone = objective.sample(share, Keys(0, 3, torch.arange(10)[part]))
        assert all(torch.equal(alone[name], together[name][part]) for name in together)


def test_split_losses_add_up_to_the_whole() -> None:
    objective, drawn = batch(12)
    model = Constant(2)
    whole = objective.loss(model, drawn).total
    parts = [
        objective.loss(model, {name: value[part] for name, value in drawn.items()}).total
        for part in (slice(0, 5), slice(5, 12))
    ]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-6, atol=0)
    assert objective.weight(drawn) == 12


def test_labels_are_dropped_at_their_rate_in_training_and_never_in_evaluation() -> None:
    _, training = batch(4000)
    share = (training["label"] == CLASSES).float().mean().item()
    assert share == pytest.approx(0.1, abs=0.02)
    _, evaluation = batch(4000, step=-1)
    assert torch.equal(evaluation["label"], items(4000)["label"])
    assert not torch.equal(evaluation["timestep"], training["timestep"])


def test_timesteps_cover_their_range_evenly() -> None:
    _, drawn = batch(4000, timesteps=4)
    counts = torch.bincount(drawn["timestep"], minlength=4)
    assert len(counts) == 4
    assert counts.min() > 850


def test_loss_is_float32_under_autocast() -> None:
    torch.manual_seed(0)
    model = DiT(4, 2, 1, hidden_size=16, depth=1, num_heads=2, num_classes=CLASSES)
    objective, drawn = batch(8)
    full = objective.loss(model, drawn)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = objective.loss(model, drawn)
    assert mixed.total.dtype == torch.float32
    # The model still returns zeros, so that all there is to differ is the loss itself.
    assert torch.equal(mixed.total, full.total)


def test_loss_can_be_traced_without_values() -> None:
    objective, drawn = batch(4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model = DiT(4, 2, 1, hidden_size=16, depth=1, num_heads=2, num_classes=CLASSES)
        fake = {name: mode.from_tensor(value) for name, value in drawn.items()}
        total = objective.loss(model, fake).total
        total.backward()
    assert total.shape == ()


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"timesteps": 1}, "model.objective.timesteps"),
        ({"beta_start": 0.5}, "model.objective.beta_start"),
        ({"label_dropout": 1.5}, "model.objective.label_dropout"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as caught:
        Diffusion(CLASSES, **arguments)
    assert caught.value.key == key


def test_unknown_labels_are_refused_with_the_key_to_change() -> None:
    objective = Diffusion(num_classes=3)
    with pytest.raises(UserError, match=r"use model\.num_classes=10 or more"):
        objective.sample(items(10), Keys(0, 0, torch.arange(10)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_loss_on_a_gpu_equals_the_loss_on_the_cpu() -> None:
    objective, drawn = batch(64)
    on_cpu = objective.loss(Constant(2), drawn).total.item()
    moved = {name: value.cuda() for name, value in drawn.items()}
    on_gpu = objective.loss(Constant(2).cuda(), moved).total.item()
    assert on_gpu == pytest.approx(on_cpu, rel=1e-5)
