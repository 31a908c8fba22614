from torch import Tensor, nn

from sweeper.data.keyed import Keys
from sweeper.models.objective import Batch, LossSum


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Net(nn.Module):
    """Noisy images to clean ones."""

    def __init__(self, input_size: int, in_channels: int, width: int, depth: int) -> None:
        super().__init__()
        pixels = in_channels * input_size**2
        self.first = nn.Linear(pixels, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.Linear(width, pixels)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(image.flatten(1))
        for block in self.blocks:
            x = block(x)
        return self.last(x).view_as(image)


class Objective:
    """Squared error between the network's answer and the image before noise."""

    def __init__(self, noise: float) -> None:
        self.noise = noise

    def sample(self, items: Batch, keys: Keys) -> Batch:
        noise = self.noise * keys.normal("noise", tuple(items["image"].shape[1:]))
        return {"image": items["image"], "noisy": items["image"] + noise}

    def weight(self, batch: Batch) -> int:
        return len(batch["image"])

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        error = (model(batch["noisy"]).float() - batch["image"]).square().flatten(1).mean(1)
        return LossSum(error.sum(), {"root": error.detach().sqrt().sum()})
