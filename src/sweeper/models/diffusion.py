"""The denoising-diffusion objective: linear variances and, where the model has it, a learned one.

Sources: Ho, Jain & Abbeel, "Denoising Diffusion Probabilistic Models", NeurIPS 2020 (process, noise
error, discretised likelihood); Nichol & Dhariwal, "Improved Denoising Diffusion Probabilistic
Models", ICML 2021 (learned variance, hybrid loss).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sweeper.data.keyed import Keys
from sweeper.errors import UserError
from sweeper.models.checks import check_labels, check_share
from sweeper.models.objective import Batch, LossSum

PIXEL = 2 / 255  # width of one of 256 grey levels in [-1, 1]


class Schedule(NamedTuple):
    """The constants of one timestep, names as in `Diffusion`; of one shape, to be broadcast."""

    signal: Tensor  # sqrt(A_t)
    spread: Tensor  # sqrt(1 - A_t)
    from_image: Tensor  # weight of x0 in the mean of q(x_{t-1} | x_t, x0)
    from_noisy: Tensor  # weight of x_t in that mean
    log_beta: Tensor  # log b_t
    log_posterior: Tensor  # log B_t


class Diffusion:
    """Noise error plus variational bound, the loss DiT is trained with.

    An image x0 is noised at a timestep t, the model sees x_t and predicts the noise and, in a
    second half of its channels, v. With b_t rising linearly, a_t = 1 - b_t and A_t = a_0 ... a_t:

        x_t  = sqrt(A_t) x0 + sqrt(1 - A_t) noise
        loss = mean((noise - predicted noise)^2) + timesteps / 1000 * bound_t
        bound_t = KL(q(x_{t-1} | x_t, x0) || p(x_{t-1} | x_t))  for t > 0, mean over pixels, bits
        bound_0 = -log p(x0 | x_1) over 256 grey levels,        mean over pixels, bits
        log variance of p = f log b_t + (1 - f) log B_t,  f = (v + 1) / 2
        B_t = b_t (1 - A_{t-1}) / (1 - A_t), the variance of q; B_0, which is 0, is set to B_1

    The mean of p is detached, so the bound teaches the variance alone. The paper weights the bound
    summed over all timesteps by 0.001; one drawn timestep stands for all, hence timesteps / 1000.
    Images are taken to lie in [-1, 1]. A model without the second half of channels is trained on
    the noise error alone. The loss is computed in float32, whatever the model computes in.

    A batch has `image` (n, c, h, w) and `label` (n,); `sample` adds `noise` like the image,
    `timestep` (n,) and `schedule` (n, 6), the constants of each sample's timestep.

    Args:
        num_classes: labels the model knows; the index `num_classes` means "no label".
        timesteps: noise levels.
        beta_start: variance added at the first timestep.
        beta_end: variance added at the last timestep.
        label_dropout: share of training samples that are shown without their label.
    """

    def __init__(
        self,
        num_classes: int,
        timesteps: int = 1000,
        beta_start: float = 1e-4,
        beta_end: float = 0.02,
        label_dropout: float = 0.1,
    ) -> None:
        if timesteps < 2:
            raise UserError("model.objective.timesteps", f"{timesteps} is too few", "use 2 or more")
        if not 0 < beta_start <= beta_end < 1:
            raise UserError(
                "model.objective.beta_start",
                f"variances from {beta_start} to {beta_end} are not possible",
                "use 0 < beta_start <= beta_end < 1",
            )
        check_share("model.objective.label_dropout", label_dropout)
        self.num_classes = num_classes
        self.timesteps = timesteps
        self.label_dropout = label_dropout
        self.schedule = linear_schedule(timesteps, beta_start, beta_end)

    def sample(self, items: Batch, keys: Keys) -> Batch:
        """Draw timestep, noise and dropped labels; evaluation (step -1) drops no label.

        Raises:
            UserError: a label that the model does not know.
        """
        image, label = items["image"], items["label"]
        check_labels(label, self.num_classes)
        if keys.step >= 0 and self.label_dropout > 0:
            dropped = keys.uniform("label") < self.label_dropout
            label = torch.where(dropped, self.num_classes, label)
        timestep = keys.integers("timestep", self.timesteps)
        return {
            "image": image,
            "label": label,
            "timestep": timestep,
            "noise": keys.normal("noise", tuple(image.shape[1:])),
            "schedule": self.schedule[timestep],  # picked on the CPU: the device holds no table
        }

    def weight(self, batch: Batch) -> int:
        """Number of samples."""
        return batch["image"].shape[0]

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        """Loss summed over samples; metrics `mse` and, with a learned variance, `bound` (bits).

        Raises:
            UserError: the model returns neither as many channels as the image has nor twice that.
        """
        image, noise, timestep = batch["image"].float(), batch["noise"], batch["timestep"]
        schedule = Schedule(*batch["schedule"][..., None, None, None].unbind(1))
        noisy = schedule.signal * image + schedule.spread * noise
        output = model(noisy, timestep, batch["label"])
        channels = image.shape[1]
        if output.shape[1] not in (channels, 2 * channels):
            raise UserError(
                "model.objective",
                f"the model returns {output.shape[1]} channels for an image of {channels}",
                f"use a model that returns {channels} (noise) or {2 * channels} (noise, variance)",
            )
        predicted, v = output[:, :channels].float(), output[:, channels:].float()
        loss = mse = (noise - predicted).square().flatten(1).mean(1)
        metrics = {"mse": mse.detach().sum()}
        if output.shape[1] == 2 * channels:
            bound = variational_bound(image, noisy, predicted.detach(), v, timestep, schedule)
            metrics["bound"] = bound.detach().sum()
            loss = mse + bound * (self.timesteps / 1000)
        return LossSum(loss.sum(), metrics)


def linear_schedule(timesteps: int, beta_start: float, beta_end: float) -> Tensor:
    """(timesteps, 6) float32, computed in float64; the columns are those of `Schedule`."""
    beta = torch.linspace(beta_start, beta_end, timesteps, dtype=torch.float64)
    product = torch.cumprod(1 - beta, dim=0)
    before = torch.cat([torch.ones(1, dtype=torch.float64), product[:-1]])
    posterior = beta * (1 - before) / (1 - product)
    posterior[0] = posterior[1]
    schedule = Schedule(
        signal=product.sqrt(),
        spread=(1 - product).sqrt(),
        from_image=beta * before.sqrt() / (1 - product),
        from_noisy=(1 - before) * (1 - beta).sqrt() / (1 - product),
        log_beta=beta.log(),
        log_posterior=posterior.log(),
    )
    return torch.stack(list(schedule), dim=1).float()


def variational_bound(
    image: Tensor,
    noisy: Tensor,
    predicted_noise: Tensor,
    v: Tensor,
    timestep: Tensor,
    schedule: Schedule,
) -> Tensor:
    """The bound's term of each sample's timestep, bits per pixel and channel.

    Args:
        image: (n, c, h, w) x0.
        noisy: (n, c, h, w) x_t.
        predicted_noise: (n, c, h, w).
        v: (n, c, h, w), place of the log variance between its least (-1) and greatest (1) value.
        timestep: (n,).
        schedule: the timesteps' constants, each (n, 1, 1, 1).

    Returns:
        (n,) float32.
    """
    signal, spread, from_image, from_noisy, log_beta, log_posterior = schedule
    image_guess = (noisy - spread * predicted_noise) / signal
    mean = from_image * image_guess + from_noisy * noisy
    share = (v + 1) / 2
    log_variance = share * log_beta + (1 - share) * log_posterior
    true_mean = from_image * image + from_noisy * noisy
    divergence = gaussian_divergence(true_mean, log_posterior, mean, log_variance)
    is_first = (timestep == 0)[:, None, None, None]
    # Where t > 0 the likelihood is not used; a mean on the image keeps its gradient finite there.
    surprise = -grey_level_log_likelihood(image, torch.where(is_first, mean, image), log_variance)
    return torch.where(is_first, surprise, divergence).flatten(1).mean(1) / math.log(2)


def gaussian_divergence(
    mean1: Tensor, log_variance1: Tensor, mean2: Tensor, log_variance2: Tensor
) -> Tensor:
    """KL(N(mean1, variance1) || N(mean2, variance2)) element by element, nats."""
    difference = log_variance1 - log_variance2
    offset = (mean1 - mean2).square() * torch.exp(-log_variance2)
    return 0.5 * (difference.exp() - 1 - difference + offset)


def grey_level_log_likelihood(image: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Log probability, nats, that a Gaussian falls on the image's grey level.

    A level owns the interval of width `PIXEL` around it; black and white own the open ends as well.
    """
    scale = torch.exp(-0.5 * log_variance)
    # The bell is symmetric: measured from the nearer tail, the difference of areas does not cancel.
    distance = (image - mean).abs()
    upper = _log_area((PIXEL / 2 - distance) * scale)
    lower = _log_area((-PIXEL / 2 - distance) * scale)
    gap = (lower - upper).clamp(max=-1e-12)
    inside = upper + torch.log(-torch.expm1(gap))
    black = _log_area((image + PIXEL / 2 - mean) * scale)
    white = _log_area((mean - image + PIXEL / 2) * scale)
    return torch.where(image < -0.999, black, torch.where(image > 0.999, white, inside))


def _log_area(x: Tensor) -> Tensor:
    """Log of the standard normal's area below x, accurate far into the lower tail."""
    area: Tensor = torch.special.log_ndtr(x)
    return area
