"""A small residual image classifier without BatchNorm, whose statistics would join samples."""

from __future__ import annotations

from torch import Tensor, nn

from sweeper.models.checks import check_divides, check_image_shape


class ResidualBlock(nn.Module):
    """Two normalised 3x3 convolutions added to their input (n, width, h, w)."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.GroupNorm(groups, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(groups, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.branch(x)
        return y


class Classifier(nn.Module):
    """Patches, residual blocks of one width, global average, linear head.

    Args:
        input_size: height and width of the image, pixels.
        patch_size: side of the patch that becomes one position, pixels; must divide `input_size`.
        in_channels: channels of the image.
        width: channels inside the blocks; a multiple of `groups`.
        depth: number of blocks.
        num_classes: labels.
        groups: groups of a GroupNorm.

    Raises:
        UserError: sizes that do not divide.
    """

    def __init__(
        self,
        input_size: int,
        patch_size: int,
        in_channels: int,
        width: int,
        depth: int,
        num_classes: int,
        groups: int = 8,
    ) -> None:
        super().__init__()
        check_divides("model.patch_size", patch_size, "model.input_size", input_size)
        check_divides("model.groups", groups, "model.width", width)
        self.image_shape = (in_channels, input_size, input_size)
        self.stem = nn.Conv2d(in_channels, width, patch_size, stride=patch_size)
        self.blocks = nn.ModuleList(ResidualBlock(width, groups) for _ in range(depth))
        self.norm = nn.GroupNorm(groups, width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (n, in_channels, input_size, input_size) to logits (n, num_classes).

        Raises:
            UserError: images of another shape.
        """
        check_image_shape(x, self.image_shape)
        features = self.stem(x.to(self.stem.weight.dtype))
        for block in self.blocks:
            features = block(features)
        logits: Tensor = self.head(self.norm(features).mean(dim=(2, 3)))
        return logits
