"""DiT: a diffusion model made of transformer blocks that a timestep and a label modulate.

Written from Peebles & Xie, "Scalable Diffusion Models with Transformers", ICCV 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sweeper.errors import UserError
from sweeper.models.checks import check_divides, check_image_shape

FREQUENCIES = 256  # width of the sinusoidal timestep features


def sinusoid(position: Tensor, width: int) -> Tensor:
    """Cosines and sines of `position` at `width / 2` frequencies from 1 down to 1/10,000.

    Args:
        position: (n,), any number type.
        width: even.

    Returns:
        (n, width) float32.
    """
    half = width // 2
    exponent = torch.arange(half, dtype=torch.float32, device=position.device) / half
    angle = position.float()[:, None] * torch.exp(-math.log(10_000) * exponent)
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def grid_position(side: int, width: int) -> Tensor:
    """(side * side, width) float32: half the width encodes a patch's row, half its column."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    halves = [sinusoid(axis.flatten(), width // 2) for axis in (rows, columns)]
    return torch.cat(halves, dim=1)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Shift and scale (n, tokens, width) by one vector (n, width) per sample."""
    return x * (1 + scale[:, None]) + shift[:, None]


class TimestepEmbedding(nn.Module):
    """Timesteps (n,) to vectors (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(FREQUENCIES, width)
        self.outer = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        features = sinusoid(t, FREQUENCIES)
        # The sinusoid needs float32; the weights may be kept in less.
        vector: Tensor = self.outer(F.silu(self.inner(features.to(self.inner.weight.dtype))))
        return vector


class Modulation(nn.Module):
    """One condition (n, width) to `vectors` vectors (n, width) that shift, scale or gate."""

    def __init__(self, width: int, vectors: int) -> None:
        super().__init__()
        self.vectors = vectors
        self.linear = nn.Linear(width, vectors * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        joined: Tensor = self.linear(F.silu(condition))
        return joined.chunk(self.vectors, dim=1)


class Attention(nn.Module):
    """Multi-head self-attention over (n, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(n, tokens, width))
        return y


class DiTBlock(nn.Module):
    """Attention and MLP, each modulated before and gated after (adaLN-Zero)."""

    def __init__(self, width: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width)
        )
        self.modulation = Modulation(width, 6)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x (n, tokens, width), condition (n, width) -> (n, tokens, width)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)
        x = x + gate1[:, None] * self.attention(modulate(self.norm1(x), shift1, scale1))
        y: Tensor = x + gate2[:, None] * self.mlp(modulate(self.norm2(x), shift2, scale2))
        return y


class FinalLayer(nn.Module):
    """Tokens (n, tokens, width) to pixels of their patches (n, tokens, outputs)."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.modulation = Modulation(width, 2)
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.modulation(condition)
        pixels: Tensor = self.linear(modulate(self.norm(x), shift, scale))
        return pixels


class DiT(nn.Module):
    """Predicts the noise in an image, and with `learn_sigma` its variance, given time and label.

    The model draws nothing at random: dropping labels is the objective's part, which replaces a
    label by the index `num_classes`. The fixed position embedding is a parameter that takes no
    gradient, so that parameter counts equal the published ones; an optimizer must leave it out.

    Args:
        input_size: height and width of the image or latent, pixels.
        patch_size: side of a patch, pixels; must divide `input_size`.
        in_channels: channels of the image or latent.
        hidden_size: width of a token; a multiple of 4 and of `num_heads`.
        depth: number of blocks.
        num_heads: attention heads of a block.
        mlp_ratio: width of a block's MLP over `hidden_size`.
        num_classes: labels; one more embedding stands for "no label".
        learn_sigma: also predict a variance per pixel, which doubles the output channels.

    Raises:
        UserError: sizes that do not divide.
    """

    def __init__(
        self,
        input_size: int,
        patch_size: int,
        in_channels: int,
        hidden_size: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        num_classes: int = 1000,
        learn_sigma: bool = True,
    ) -> None:
        super().__init__()
        check_divides("model.patch_size", patch_size, "model.input_size", input_size)
        check_divides("model.num_heads", num_heads, "model.hidden_size", hidden_size)
        if hidden_size % 4:
            raise UserError(
                "model.hidden_size", f"{hidden_size} is not a multiple of 4", "use a multiple of 4"
            )
        self.image_shape = (in_channels, input_size, input_size)
        self.patch_size = patch_size
        self.out_channels = 2 * in_channels if learn_sigma else in_channels
        self.patches = nn.Conv2d(in_channels, hidden_size, patch_size, stride=patch_size)
        self.position = nn.Parameter(
            grid_position(input_size // patch_size, hidden_size), requires_grad=False
        )
        self.timestep = TimestepEmbedding(hidden_size)
        self.label = nn.Embedding(num_classes + 1, hidden_size)
        self.blocks = nn.ModuleList(
            DiTBlock(hidden_size, num_heads, mlp_ratio) for _ in range(depth)
        )
        self.final = FinalLayer(hidden_size, patch_size**2 * self.out_channels)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patches.weight.flatten(1))  # a linear map of a flat patch
        assert self.patches.bias is not None
        nn.init.zeros_(self.patches.bias)
        nn.init.normal_(self.label.weight, std=0.02)
        nn.init.normal_(self.timestep.inner.weight, std=0.02)
        nn.init.normal_(self.timestep.outer.weight, std=0.02)
        # Closed gates make every block the identity at first, and the model's output is zero.
        nn.init.zeros_(self.final.linear.weight)
        for module in self.modules():
            if isinstance(module, Modulation):
                nn.init.zeros_(module.linear.weight)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """Predict noise, and with `learn_sigma` variance in the second half of the channels.

        Args:
            x: (n, in_channels, input_size, input_size), noisy images.
            t: (n,) timesteps, counted from 0.
            y: (n,) int64 labels in [0, num_classes]; num_classes means "no label".

        Returns:
            (n, in_channels or 2 * in_channels, input_size, input_size).

        Raises:
            UserError: images of another shape.
        """
        check_image_shape(x, self.image_shape)
        tokens = self.patches(x.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        tokens = tokens + self.position
        condition = self.timestep(t) + self.label(y)
        for block in self.blocks:
            tokens = block(tokens, condition)
        return self._unpatch(self.final(tokens, condition))

    def _unpatch(self, pixels: Tensor) -> Tensor:
        """(n, tokens, patch * patch * channels) -> (n, channels, height, width)."""
        n = pixels.shape[0]
        patch, side = self.patch_size, self.image_shape[1] // self.patch_size
        pixels = pixels.reshape(n, side, side, patch, patch, self.out_channels)
        # (n, rows, columns, y, x, channels) -> (n, channels, rows, y, columns, x)
        pixels = pixels.permute(0, 5, 1, 3, 2, 4)
        return pixels.reshape(n, self.out_channels, side * patch, side * patch)
