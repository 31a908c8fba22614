"""Noise schedule and variational bound against independent computations of the same quantities."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from sweeper.models.diffusion import (
    Schedule,
    grey_level_log_likelihood,
    linear_schedule,
    variational_bound,
)


def schedule(timestep: int, timesteps: int = 1000) -> Schedule:
    row = linear_schedule(timesteps, 1e-4, 0.02)[timestep]
    return Schedule(*row[:, None, None, None, None].unbind(0))


def betas(timesteps: int = 1000) -> list[float]:
    return [1e-4 + (0.02 - 1e-4) * t / (timesteps - 1) for t in range(timesteps)]


def kept(t: int) -> float:
    """A_t, multiplied out."""
    return math.prod(1 - beta for beta in betas()[: t + 1])


@pytest.mark.parametrize("t", [0, 1, 499, 999])
def test_noising_follows_the_product_of_the_variances(t: int) -> None:
    constants = schedule(t)
    assert constants.signal.item() == pytest.approx(math.sqrt(kept(t)), rel=1e-5)
    assert constants.spread.item() == pytest.approx(math.sqrt(1 - kept(t)), rel=1e-5)


@pytest.mark.parametrize("t", [1, 2, 499, 999])
def test_posterior_is_the_product_of_its_two_gaussians(t: int) -> None:
    # q(x_{t-1} | x_t, x0) ~ q(x_t | x_{t-1}) q(x_{t-1} | x0): precisions add up.
    beta, before = betas()[t], kept(t - 1)
    precision = (1 - beta) / beta + 1 / (1 - before)
    constants = schedule(t)
    assert constants.log_posterior.exp().item() == pytest.approx(1 / precision, rel=1e-4)
    assert constants.from_noisy.item() == pytest.approx(
        math.sqrt(1 - beta) / beta / precision, rel=1e-4
    )
    assert constants.from_image.item() == pytest.approx(
        math.sqrt(before) / (1 - before) / precision, rel=1e-4
    )


@pytest.mark.parametrize("t", [1, 2, 100, 999])
@pytest.mark.parametrize("v", [-1.0, 0.3, 1.0])
def test_bound_is_the_divergence_in_bits(t: int, v: float) -> None:
    torch.manual_seed(t)
    image, noise, guess = (
        torch.rand(2, 1, 4, 4) * 2 - 1,
        torch.randn(2, 1, 4, 4),
        torch.randn(2, 1, 4, 4),
    )
    noisy = math.sqrt(kept(t)) * image + math.sqrt(1 - kept(t)) * noise
    found = variational_bound(
        image, noisy, guess, torch.full_like(image, v), torch.full((2,), t), schedule(t)
    )
    x0, x_t, e = image.double(), noisy.double(), guess.double()
    beta, a_t, a_before = betas()[t], kept(t), kept(t - 1)
    true_variance = beta * (1 - a_before) / (1 - a_t)
    first_weight = math.sqrt(a_before) * beta / (1 - a_t)
    second_weight = math.sqrt(1 - beta) * (1 - a_before) / (1 - a_t)
    x0_guess = (x_t - math.sqrt(1 - a_t) * e) / math.sqrt(a_t)
    share = (v + 1) / 2
    variance = math.exp(share * math.log(beta) + (1 - share) * math.log(true_variance))
    q = Normal(first_weight * x0 + second_weight * x_t, math.sqrt(true_variance))
    p = Normal(first_weight * x0_guess + second_weight * x_t, math.sqrt(variance))
    expected = kl_divergence(q, p).flatten(1).mean(1) / math.log(2)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


def test_first_term_is_the_probability_of_the_grey_level_in_bits() -> None:
    levels = torch.tensor([-1.0, -0.6, 0.0, 0.2, 1.0])
    grey = torch.round((levels + 1) / 2 * 255) / 255 * 2 - 1
    image = grey.view(1, 1, 1, 5)
    v = torch.tensor([-1.0, 0.0, 0.5, 1.0, 0.0]).view(1, 1, 1, 5)
    noise = torch.tensor([0.4, -1.0, 0.3, 2.0, -0.2]).view(1, 1, 1, 5)
    guess = torch.zeros_like(image)
    noisy = math.sqrt(kept(0)) * image + math.sqrt(1 - kept(0)) * noise
    found = variational_bound(image, noisy, guess, v, torch.zeros(1), schedule(0))

    low, high = betas()[1] * (1 - kept(0)) / (1 - kept(1)), betas()[0]
    bits = []
    for x, share, x_1 in zip(
        image.flatten().tolist(),
        ((v + 1) / 2).flatten().tolist(),
        noisy.flatten().tolist(),
        strict=True,
    ):
        deviation = math.exp((share * math.log(high) + (1 - share) * math.log(low)) / 2)
        mean = x_1 / math.sqrt(kept(0))  # the guess says there is no noise

        def below(edge: float, m: float = mean, s: float = deviation) -> float:
            return 0.5 * math.erfc(-(edge - m) / s / math.sqrt(2))

        upper = 1.0 if x > 0.999 else below(x + 1 / 255)
        lower = 0.0 if x < -0.999 else below(x - 1 / 255)
        bits.append(-math.log2(upper - lower))
    assert found.item() == pytest.approx(sum(bits) / len(bits), rel=1e-3)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.3), (0.9, 0.01), (-1.2, 0.1)])
def test_the_grey_levels_probabilities_add_up_to_one(mean: float, deviation: float) -> None:
    levels = torch.arange(256) / 255 * 2 - 1
    log_variance = torch.full_like(levels, 2 * math.log(deviation))
    probability = grey_level_log_likelihood(
        levels, torch.full_like(levels, mean), log_variance
    ).exp()
    assert probability.sum().item() == pytest.approx(1, abs=1e-4)


def test_likelihood_stays_finite_far_from_the_mean() -> None:
    image = torch.tensor([0.5, -1.0, 1.0])
    log_variance = torch.full((3,), -9.0, requires_grad=True)
    value = grey_level_log_likelihood(image, torch.tensor([-50.0, 50.0, -50.0]), log_variance)
    value.sum().backward()
    assert value.isfinite().all()
    assert log_variance.grad is not None
    assert log_variance.grad.isfinite().all()
