"""Which modules count as the blocks of a model."""

import pytest
from torch import nn
from training_cases import Norms, Transformer, Twice

from sweeper.errors import UserError
from sweeper.training.blocks import find_blocks


class Residual(nn.Module):
    """Two convolutions, and a third on the shortcut where the width changes."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        if inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, depths=(2, 2, 2)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7), nn.BatchNorm2d(8), nn.ReLU())
        width = 8
        for number, depth in enumerate(depths, 1):
            stage = []
            for _ in range(depth):
                stage.append(Residual(width, 8 * 2**number))
                width = 8 * 2**number
            setattr(self, f"layer{number}", nn.Sequential(*stage))
        self.head = nn.Linear(width, 10)


class Stage(nn.Module):
    """A stage of a hierarchical transformer: blocks of one width, then a module of its own."""

    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Layer(width) for _ in range(depth))
        self.downsample = nn.Linear(width, 2 * width)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4)
        self.stages = nn.ModuleList(Stage(8 * 2**i, depth) for i, depth in enumerate((2, 2, 4)))


class Experts(nn.Module):
    """A layer that holds a list of modules of its own."""

    def __init__(self, width):
        super().__init__()
        self.router = nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.Linear(4 * width, width))
            for _ in range(4)
        )


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Experts(8) for _ in range(3))


class Siblings(nn.Module):
    """Blocks that stand in no list."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Layer(8), Layer(8), Layer(8)
        self.head = nn.Linear(8, 2)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = Transformer(depth=2), Transformer(depth=2)


class Shared(nn.Module):
    """One layer, used six times."""

    def __init__(self):
        super().__init__()
        layer = Layer(8)
        self.layers = nn.ModuleList([layer] * 6)


def names(prefix, count):
    return [f"{prefix}.{i}" for i in range(count)]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Transformer(depth=3), names("blocks", 3)),
        (ResNet(), [n for i in (1, 2, 3) for n in names(f"layer{i}", 2)]),
        (ResNet((1, 1, 1)), ["layer1.0", "layer2.0", "layer3.0"]),
        (
            Swin(),
            [n for i, depth in enumerate((2, 2, 4)) for n in names(f"stages.{i}.blocks", depth)],
        ),
        (Mixture(), names("layers", 3)),
        (
            nn.Transformer(16, 2, 2, 2, 32, batch_first=True),
            names("encoder.layers", 2) + names("decoder.layers", 2),
        ),
        (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 4),
            names("layers", 4),
        ),
        (
            nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)]),
            ["0", "1", "2", "3"],
        ),
        (Siblings(), ["first", "second", "third"]),
        (Towers(), names("left.blocks", 2) + names("right.blocks", 2)),
        (Shared(), ["layers.0"]),
        (Norms(), names("blocks", 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repeated_blocks_are_found(model, expected):
    found = find_blocks(model)
    assert list(found) == expected
    modules = dict(model.named_modules(remove_duplicate=False))
    assert all(modules[name] is block for name, block in found.items())


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)),
        Twice(),
        nn.Linear(2, 2),
    ],
    ids=["mlp", "one block", "one layer"],
)
def test_a_model_that_repeats_nothing_is_refused(model):
    with pytest.raises(UserError) as caught:
        find_blocks(model)
    assert caught.value.key == "ckpt.blocks"


def test_refusal_names_modules_to_choose_from():
    with pytest.raises(UserError, match="block"):
        find_blocks(Twice())
    with pytest.raises(UserError, match=r"blocks\\.0"):
        find_blocks(Transformer(), "no such module")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"blocks\.\d+", names("blocks", 3)),
        (r"blocks\.[02]", ["blocks.0", "blocks.2"]),
        (r"blocks\..*", names("blocks", 3)),  # of matches inside each other, the outer ones
        (r".*\.mlp", ["blocks.0.mlp", "blocks.1.mlp", "blocks.2.mlp"]),
        (r"block", None),  # not the whole name
        (r"blocks", None),  # a list is never called
        (r"blocks\.(", None),
    ],
)
def test_blocks_may_be_named_by_pattern(pattern, expected):
    model = Transformer(depth=3)
    if expected is None:
        with pytest.raises(UserError) as caught:
            find_blocks(model, pattern)
        assert caught.value.key == "ckpt.blocks"
    else:
        assert list(find_blocks(model, pattern)) == expected
