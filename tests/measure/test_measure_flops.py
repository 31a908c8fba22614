"""FLOPs against arithmetic by hand and against torch's own counter."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from sweeper.measure.flops import count_flops, share_of_peak
from sweeper.measure.peaks import peak_flops


def train(model: nn.Module, x: Tensor) -> None:
    model(x).sum().backward()


class Block(nn.Module):
    """A linear layer, attention over 4 heads, a linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        out: Tensor = self.out(y)
        return out


class Blocks(nn.Module):
    def __init__(self, checkpointed: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(3))
        self.checkpointed, self.reentrant = checkpointed, reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = (
                checkpoint(block, x, use_reentrant=self.reentrant)
                if self.checkpointed
                else block(x)
            )
        return x


def test_linear_layers_by_hand() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    flops = count_flops(lambda: train(model, torch.randn(8, 10)))
    first, second = 2 * 8 * 10 * 20, 2 * 8 * 20 * 5
    # Backward: both gradients of the second layer, but none of the first layer's input.
    assert flops.executed == flops.useful == (first + first) + (second + 2 * second)


def test_accumulated_micro_batches_all_count() -> None:
    model = nn.Linear(10, 20)
    one = count_flops(lambda: train(model, torch.randn(4, 10)))
    both = count_flops(lambda: [train(model, torch.randn(4, 10)) for _ in range(2)])
    assert both.executed == 2 * one.executed


def test_attention_by_hand() -> None:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    flops = count_flops(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
    product = 2 * (2 * 4) * 16 * 16 * 8
    assert flops.executed == (2 + 5) * product
    assert flops.recomputed == product  # fused attention computes the scores again
    assert flops.useful == 6 * product


@pytest.mark.parametrize("reentrant", [False, True])
def test_useful_flops_do_not_depend_on_checkpointing(reentrant: bool) -> None:
    x = torch.randn(2, 16, 32)
    off = count_flops(lambda: train(Blocks(False), x))
    on = count_flops(lambda: train(Blocks(True, reentrant), x))
    assert on.useful == off.useful
    # Each block's forward again, up to the last value that the backward needs: the input of its
    # last layer, which therefore is not computed again when recomputation may stop early.
    qkv, out = 2 * 2 * 16 * 32 * 96, 2 * 2 * 16 * 32 * 32
    scores = 2 * (2 * 2 * 4 * 16 * 16 * 8)
    again = 3 * (qkv + scores + (out if reentrant else 0))
    assert on.executed - off.executed == again


def test_the_same_as_torchs_counter_where_that_is_right() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3), nn.Flatten()
    )
    x = torch.randn(2, 3, 17, 17, requires_grad=True)
    with FlopCounterMode(display=False) as torchs:
        train(model, x)
    assert count_flops(lambda: train(model, x)).executed == torchs.get_total_flops()


def test_grouped_convolutions_by_hand() -> None:
    model = nn.Conv2d(16, 16, 3, padding=1, groups=16)  # depthwise
    x = torch.randn(2, 16, 10, 10, requires_grad=True)
    forward = 2 * (2 * 16 * 10 * 10) * (1 * 3 * 3)
    assert count_flops(lambda: train(model, x)).executed == 3 * forward


def test_share_of_peak_is_none_where_the_peak_is_unknown() -> None:
    assert share_of_peak(1e12, 0.5, 4e12) == pytest.approx(0.5)
    assert share_of_peak(8e12, 0.5, 4e12, devices=4) == pytest.approx(1.0)
    assert share_of_peak(1e12, 0.5, peak_flops("AMD EPYC", "float32")) is None


@pytest.mark.parametrize(
    ("name", "dtype", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "torch.bfloat16", 312),
        ("NVIDIA A100 80GB PCIe", "tf32", 156),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H200", "float8", 1979),
        ("Tesla V100-SXM2-32GB", "float16", 125),
        ("Tesla T4", "float32", 8.1),
        ("NVIDIA L4", "bfloat16", 121),
        ("NVIDIA L40S", "bfloat16", 362.05),
        ("NVIDIA GeForce RTX 3090", "bfloat16", 71),
        ("NVIDIA GeForce RTX 4090", "float32", 82.6),
    ],
)
def test_published_peaks(name: str, dtype: str, teraflops: float) -> None:
    assert peak_flops(name, dtype) == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Tesla V100-SXM2-32GB", "bfloat16"),  # has none
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "bfloat16"),  # a seventh of it
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "float32"),  # another chip
        ("NVIDIA GeForce RTX 3090 Ti", "float32"),
        ("NVIDIA A100-SXM4-80GB", "int8"),
        ("AMD Instinct MI300X", "bfloat16"),
    ],
)
def test_no_peak_is_guessed(name: str, dtype: str) -> None:
    assert peak_flops(name, dtype) is None
