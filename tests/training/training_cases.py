"""Small models, objectives and runs that the tests of the training step share."""

from __future__ import annotations

import copy
import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from sweeper.config import Config
from sweeper.models.objective import Batch, LossSum
from sweeper.place import Place
from sweeper.training import TrainStep, build_step, close_ranks, init_ranks

CPU = torch.device("cpu")
TOKENS, CHANNELS, CLASSES = 8, 4, 10


class Block(nn.Module):
    """A transformer block that a vector per sample modulates."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
        )
        self.modulation = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.modulation(F.silu(condition))[:, None].chunk(2, dim=-1)
        h = self.norm(x) * (1 + scale) + shift
        q, k, v = self.qkv(h).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """(n, 8, 4) numbers, time (n,) and label (n,) to (n, 8, 4); its sinusoid is float32 inside."""

    def __init__(self, width: int = 32, depth: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Linear(CHANNELS, width)
        self.position = nn.Parameter(torch.randn(TOKENS, width) / 10, requires_grad=False)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(CLASSES, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(depth))
        self.head = nn.Linear(width, CHANNELS)

    def forward(self, x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        angle = time.float()[:, None] * torch.exp(-torch.arange(8, device=x.device).float())
        condition = self.time(torch.cat([angle.cos(), angle.sin()], dim=1)) + self.label(label)
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x, condition)
        return self.head(x)


class Denoise:
    """Squared error, summed over samples."""

    def sample(self, items: Batch, keys: Any) -> Batch:
        return items

    def weight(self, batch: Batch) -> int:
        return batch["x"].shape[0]

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        error = model(batch["x"], batch["time"], batch["label"]).float() - batch["noise"]
        return LossSum(error.square().flatten(1).mean(1).sum(), {})


class Tokens(Denoise):
    """The same error, summed over the tokens that count: samples have different lengths."""

    def weight(self, batch: Batch) -> Tensor:
        return self._mask(batch).sum()

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        error = model(batch["x"], batch["time"], batch["label"]).float() - batch["noise"]
        return LossSum((error.square().mean(2) * self._mask(batch)).sum(), {})

    @staticmethod
    def _mask(batch: Batch) -> Tensor:
        lengths = batch["label"] % TOKENS + 1
        return torch.arange(TOKENS, device=lengths.device) < lengths[:, None]


class Weighted(nn.Module):
    """One weight, whose gradient is the mean of the units' values."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight * x


class MeanOfUnits:
    """A batch states its mean loss and its number of tokens; the total is their product."""

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        return LossSum(model(batch["mean"]) * batch["tokens"], {})


class Linear(nn.Module):
    """Four weights, all zero; the input 10 gives each a gradient of 10, of norm 20.

    It computes in float32 under any autocast: 10 times a loss scale of 65,536 is no float16.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.linear.weight).sum(1)


class SumOutput:
    """The model's output, summed over samples."""

    def weight(self, batch: Batch) -> int:
        return batch["x"].shape[0]

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        return LossSum(model(batch["x"]).float().sum(), {})


class Norms(nn.Module):
    """Blocks with BatchNorm and functional dropout, which no attribute shows."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(NormBlock(dropout) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class NormBlock(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(4, 4), nn.BatchNorm1d(4), dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(F.relu(self.norm(self.linear(x))), self.dropout, self.training)


class Twice(nn.Module):
    """Raw data go straight into a block that is used twice; one layer is never used."""

    def __init__(self, unused: bool = False) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 1)
        self.idle = nn.Linear(4, 1) if unused else None

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.block(x)))


def target(of: type, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"{of.__module__}.{of.__qualname__}", **arguments}


def make_config(
    model: type = Transformer, objective: type = Denoise, *, lr: float = 1e-3, **arguments: Any
) -> Config:
    """A config without files: AdamW, constant lr, 20 steps; `arguments` are the model's."""
    config = Config()
    config.model = {**target(model, **arguments), "objective": target(objective)}
    config.optim = {"_target_": "torch.optim.AdamW", "lr": lr, "fused": None, "foreach": None}
    config.lr = {"_target_": "sweeper.training.schedule.Constant"}
    config.train.steps = 20
    return config


def with_sgd(config: Config, lr: float = 1.0) -> Config:
    config.optim = {"_target_": "torch.optim.SGD", "lr": lr}
    return config


def amp(config: Config, compute: str) -> Config:
    config.precision.name = "amp"
    config.precision.compute, config.precision.autocast = compute, True
    return config


def global_batch(step: int, samples: int = 16) -> Batch:
    """The batch of a step, the same for every split."""
    draw = torch.Generator().manual_seed(step)
    return {
        "x": torch.randn(samples, TOKENS, CHANNELS, generator=draw),
        "noise": torch.randn(samples, TOKENS, CHANNELS, generator=draw),
        "time": torch.randint(0, 1000, (samples,), generator=draw).float(),
        "label": torch.randint(0, CLASSES, (samples,), generator=draw),
    }


def cut(batch: Batch, sizes: list[int]) -> list[Batch]:
    """Contiguous parts of a batch."""
    parts = {name: value.split(sizes) for name, value in batch.items()}
    return [{name: parts[name][i] for name in batch} for i in range(len(sizes))]


def train(
    step: TrainStep,
    steps: int,
    sizes: list[int],
    rank: int = 0,
    first: int = 0,
    count: bool = False,
) -> list[float]:
    """Train on parts of the given sizes, this rank's being the `rank`th run of equal length.

    Args:
        step: what to call.
        steps: how often.
        sizes: micro-batches of all ranks, in order.
        rank: this rank.
        first: the first step's number.
        count: let the step add up the weights, instead of telling it.

    Returns:
        The global batch's mean loss at each step, summed over ranks.
    """
    world = 1 if step._group is None else dist.get_world_size(step._group)
    per_rank = len(sizes) // world
    losses = []
    for number in range(first, first + steps):
        batch = global_batch(number, sum(sizes))
        parts = cut(batch, sizes)[rank * per_rank : (rank + 1) * per_rank]
        weights = [step.objective.weight(part) for part in parts]
        whole = None if count else step.objective.weight(batch)
        loss = step(parts, weights, global_weight=whole).loss.double()
        if world > 1:
            dist.all_reduce(loss)
        losses.append(float(loss))
    return losses


def weights_of(step: TrainStep) -> dict[str, Tensor]:
    return copy.deepcopy(step.model.state_dict())


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def relative(a: list[float], b: list[float]) -> float:
    """The largest relative difference."""
    first, second = torch.tensor(a).double(), torch.tensor(b).double()
    return float(((first - second).abs() / first.abs()).max())


Job = Callable[..., Any]

# Each rank is a fresh process; only the imports, seconds long, are done once for all.
_FRESH = multiprocessing.get_context("forkserver")
_FRESH.set_forkserver_preload(["torch._dynamo", "sweeper.training"])


def _rank_main(
    rank: int,
    job: Job,
    directory: Path,
    world: int,
    args: tuple[Any, ...],
    environment: dict[str, str],
) -> None:
    torch.set_num_threads(1)
    os.environ.update(environment)
    place = Place(directory, rank, world, rank, world)
    try:
        group = init_ranks(place, CPU, timeout_s=60)
        torch.save(job(group, rank, *args), directory / f"result{rank}.pt")
        close_ranks(group)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class Ranks:
    """`job(group, rank, *args)` on real gloo ranks, each a process of its own."""

    def __init__(self, job: Job, world: int, directory: Path, *args: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.processes = [
            _FRESH.Process(
                target=_rank_main, args=(rank, job, directory, world, args, dict(os.environ))
            )
            for rank in range(world)
        ]
        for process in self.processes:
            process.start()

    def results(self) -> list[Any]:
        for process in self.processes:
            process.join(120)
        codes = [process.exitcode for process in self.processes]
        for process in self.processes:
            process.kill()
        assert codes == [0] * len(codes), "a rank failed or hung; its traceback is on stderr"
        paths = [self.directory / f"result{rank}.pt" for rank in range(len(codes))]
        return [torch.load(path, weights_only=False) for path in paths]


def on_ranks(job: Job, world: int, directory: Path, *args: Any) -> list[Any]:
    """What `job(group, rank, *args)` returns on each of `world` ranks."""
    return Ranks(job, world, directory, *args).results()


def build_and_train(
    group: dist.ProcessGroup, rank: int, config: Config, steps: int, sizes: list[int], count: bool
) -> tuple[list[float], dict[str, Tensor]]:
    step = build_step(config, CPU, process_group=group)
    return train(step, steps, sizes, rank, count=count), weights_of(step)
