"""DiT: published sizes, the identity it starts from, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from sweeper.errors import UserError
from sweeper.instantiate import build, check_target
from sweeper.models.dit import DiT, grid_position, sinusoid

CONF = Path(__file__).parents[2] / "conf" / "model"

PUBLISHED = {
    "dit_s_2": 32_963_360,
    "dit_s_4": 32_945_024,
    "dit_s_8": 33_148_160,
    "dit_b_2": 130_512_416,
    "dit_b_4": 130_475_648,
    "dit_b_8": 130_881_536,
    "dit_l_2": 458_102_816,
    "dit_l_4": 458_053_760,
    "dit_l_8": 458_594_816,
    "dit_xl_2": 675_129_632,
    "dit_xl_4": 675_074_432,
    "dit_xl_8": 675_683_072,
}


def load(name: str) -> dict[str, Any]:
    tree = OmegaConf.create({"model": OmegaConf.load(CONF / f"{name}.yaml")})
    nodes = OmegaConf.to_container(tree, resolve=True)
    assert isinstance(nodes, dict)
    return dict(nodes["model"])


def tiny(**changes: Any) -> DiT:
    sizes = {"input_size": 8, "patch_size": 2, "in_channels": 1, "hidden_size": 16}
    return DiT(**{**sizes, "depth": 2, "num_heads": 2, "num_classes": 10, **changes})


def inputs(n: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 1, 8, 8, generator=generator)
    return x, torch.tensor([0, 500, 999])[:n], torch.tensor([0, 9, 10])[:n]


def awaken(model: nn.Module) -> None:
    """Fill what starts at zero, so that every part of the model is seen in its output."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.2)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        model = build(load(name), "model")
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["dit_tiny", "classifier_small", *PUBLISHED])
def test_every_model_option_builds_and_says_its_own_size(name: str) -> None:
    node = load(name)
    check_target(node, "model")
    check_target(node["objective"], "model.objective")
    objective = build(node["objective"], "model.objective")
    assert objective.num_classes == node["num_classes"]
    assert {"input_size", "in_channels"} <= node.keys()
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build(node, "model").parameters())
    headline = (CONF / f"{name}.yaml").read_text("utf-8").splitlines()[0]
    assert headline.endswith(f": {parameters:,} parameters")


def test_output_has_the_image_s_shape_and_twice_its_channels_with_learned_sigma() -> None:
    assert tiny()(*inputs()).shape == (3, 2, 8, 8)
    assert tiny(learn_sigma=False)(*inputs()).shape == (3, 1, 8, 8)


def test_a_new_model_predicts_zero_and_its_blocks_are_the_identity() -> None:
    model = tiny()
    assert not model(*inputs()).any()
    tokens, condition = torch.randn(3, 16, 16), torch.randn(3, 16)
    for block in model.blocks:
        assert torch.equal(block(tokens, condition), tokens)


def test_output_depends_on_image_time_and_label() -> None:
    model = tiny()
    awaken(model)
    x, t, y = inputs()
    answer = model(x, t, y)
    for changed in ((x + 1, t, y), (x, t + 1, y), (x, t, (y + 1) % 11)):
        assert not torch.allclose(model(*changed), answer)


def test_a_sample_s_output_does_not_depend_on_its_batch() -> None:
    model = tiny()
    awaken(model)
    x, t, y = inputs()
    torch.testing.assert_close(model(x, t, y)[1:2], model(x[1:2], t[1:2], y[1:2]))


def test_equal_seeds_give_equal_weights() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(tiny())
    a, b = (m.state_dict() for m in models)
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_every_trainable_parameter_gets_a_gradient_and_the_position_none() -> None:
    model = tiny()
    awaken(model)
    model(*inputs()).square().sum().backward()
    missing = {name for name, p in model.named_parameters() if p.grad is None}
    assert missing == {"position"}
    assert not model.position.requires_grad


def test_patches_are_put_back_where_they_came_from() -> None:
    model = tiny(in_channels=3, learn_sigma=False)
    image = torch.arange(3 * 8 * 8.0).view(1, 3, 8, 8)
    # The patches in reading order, and in each the pixels in reading order with channels innermost.
    patches = [
        image[0, :, row : row + 2, column : column + 2].permute(1, 2, 0).flatten()
        for row in range(0, 8, 2)
        for column in range(0, 8, 2)
    ]
    assert torch.equal(model._unpatch(torch.stack(patches)[None]), image)


def test_sinusoid_at_known_points() -> None:
    table = sinusoid(torch.tensor([0, 1]), 4)
    expected = [
        [1, 1, 0, 0],
        [math.cos(1), math.cos(0.01), math.sin(1), math.sin(0.01)],
    ]
    torch.testing.assert_close(table, torch.tensor(expected))


def test_position_tells_rows_and_columns_apart() -> None:
    table = grid_position(4, 16).view(4, 4, 16)
    assert torch.equal(table[1, 0, :8], table[1, 3, :8])  # one row
    assert torch.equal(table[0, 2, 8:], table[3, 2, 8:])  # one column
    assert len(table.view(16, 16).unique(dim=0)) == 16


def test_weights_in_bfloat16_take_float32_images() -> None:
    model = tiny().to(torch.bfloat16)
    assert model(*inputs()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"patch_size": 3}, "model.patch_size"),
        ({"num_heads": 3}, "model.num_heads"),
        ({"hidden_size": 6, "num_heads": 2}, "model.hidden_size"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(changes: dict[str, int], key: str) -> None:
    with pytest.raises(UserError) as caught:
        tiny(**changes)
    assert caught.value.key == key


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(UserError, match=r"\(1, 4, 4\), but the model takes \(1, 8, 8\)"):
        tiny()(torch.zeros(1, 1, 4, 4), torch.zeros(1), torch.zeros(1, dtype=torch.long))
