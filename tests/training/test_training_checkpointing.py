"""Checkpointed blocks compute what they computed before."""

import copy
import warnings

import pytest
import torch
from torch import nn
from training_cases import CPU, Norms, SumOutput, Transformer, Twice, make_config, train

from sweeper.training import build_step
from sweeper.training.blocks import find_blocks
from sweeper.training.checkpointing import checkpoint_blocks
from sweeper.training.randomness import parity_of


def gradients(model, *inputs, seed=0):
    torch.manual_seed(seed)
    model.zero_grad()
    model(*inputs).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


def pair(model, pattern=None):
    plain = copy.deepcopy(model)
    checkpoint_blocks(find_blocks(model, pattern))
    return plain, model


def test_first_block_trains_on_raw_data():
    """Case C30: the block's only input is raw data, which need no gradient."""
    plain, checkpointed = pair(Twice(), "block")
    x = torch.randn(8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradients(checkpointed, x)
    expected = gradients(plain, x)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert all(grad.abs().sum() > 0 for grad in found.values())


def test_names_and_state_stay_as_they_were():
    plain, checkpointed = pair(Transformer())
    assert list(plain.state_dict()) == list(checkpointed.state_dict())
    assert [n for n, _ in plain.named_modules()] == [n for n, _ in checkpointed.named_modules()]
    assert [type(m) for m in plain.modules()] == [type(m) for m in checkpointed.modules()]


def test_activations_are_dropped_and_computed_again():
    plain, checkpointed = pair(Transformer(depth=4))
    saved, passes = [], []
    x, time, label = torch.randn(2, 8, 4), torch.zeros(2), torch.zeros(2, dtype=torch.long)
    for model in (plain, checkpointed):
        model.blocks[0].norm.register_forward_hook(lambda *_: passes.append(1))
        kept = 0

        def count(tensor):
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = model(x, time, label).sum()
        saved.append(kept)
        passes.clear()
        loss.backward()
    assert saved[1] < saved[0] / 2
    assert passes == [1]  # the checkpointed model's, in its backward


def test_nothing_is_checkpointed_where_no_gradient_is_needed():
    model = Transformer()
    wrapped = checkpoint_blocks(find_blocks(model))
    inputs = torch.randn(2, 8, 4), torch.zeros(2), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        model(*inputs)
    assert [block.calls for block in wrapped] == [0, 0, 0]
    model(*inputs)
    assert [block.calls for block in wrapped] == [1, 1, 1]


def test_running_statistics_count_a_batch_once():
    plain, checkpointed = pair(Norms())
    x = torch.randn(16, 4)
    expected, found = gradients(plain, x), gradients(checkpointed, x)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    for (name, a), (_, b) in zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True):
        assert torch.equal(a, b), name
    assert checkpointed.blocks[0].norm.momentum == 0.1
    assert int(checkpointed.blocks[0].norm.num_batches_tracked) == 1


def test_functional_dropout_is_repeated():
    plain, checkpointed = pair(Norms(dropout=0.5))
    x = torch.randn(16, 4)
    expected, found = gradients(plain, x), gradients(checkpointed, x)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_copy_checkpoints_its_own_blocks():
    model = Transformer()
    checkpoint_blocks(find_blocks(model))
    clone = copy.deepcopy(model)
    for p in clone.parameters():
        p.data.zero_()
    inputs = torch.randn(2, 8, 4), torch.zeros(2), torch.zeros(2, dtype=torch.long)
    assert clone(*inputs).abs().sum() == 0
    assert model(*inputs).abs().sum() > 0


class Keywords(nn.Module):
    """A block with keyword arguments, one named like an argument of checkpointing itself."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, *, debug=False, scale=None):
        return (self.linear(x) * scale, debug)


def test_keyword_arguments_and_several_results_pass_through():
    block = Keywords()
    checkpoint_blocks({"block": block})
    scale = torch.ones(4, requires_grad=True)
    output, debug = block(torch.randn(2, 4), debug=True, scale=scale)
    output.sum().backward()
    assert debug is True
    assert scale.grad is not None
    assert block.linear.weight.grad is not None


def test_tensors_among_the_keywords_tell_checkpointing_their_device(monkeypatch):
    """It keeps the random state of the devices of the tensors that it is given by position."""
    given = []

    def noted(function, *args, **options):
        given.extend(torch.utils._pytree.tree_leaves(args))
        return function(*args)

    monkeypatch.setattr("sweeper.training.checkpointing.checkpoint", noted)
    block = Keywords()
    checkpoint_blocks({"block": block})
    x, scale = torch.randn(2, 4), torch.ones(4, requires_grad=True)
    block(x=x, scale=scale)
    assert {id(x), id(scale)} <= {id(leaf) for leaf in given}


def test_description_counts_the_blocks_that_were_used():
    config = make_config()
    config.ckpt.enabled, config.ckpt.blocks = True, r"blocks\.[01]|label"
    step = build_step(config, CPU)
    assert step.describe()["checkpointed_blocks"] == 3
    step.model.blocks[0].forward = type(step.model.blocks[0]).forward.__get__(step.model.blocks[0])
    train(step, 1, [16])
    assert step.describe()["checkpointed_blocks"] == 2


class DropPath(nn.Module):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob


@pytest.mark.parametrize(
    ("module", "parity"),
    [
        (nn.Linear(2, 2), "exact"),
        (nn.LayerNorm(2), "exact"),
        (nn.GroupNorm(1, 2), "exact"),
        (nn.Dropout(0.0), "exact"),
        (nn.Dropout(0.1), "rng"),
        (nn.MultiheadAttention(4, 2, dropout=0.1), "rng"),
        (nn.MultiheadAttention(4, 2), "exact"),
        (nn.LSTM(4, 4, 2, dropout=0.5), "rng"),
        (nn.RReLU(), "rng"),
        (DropPath(0.2), "rng"),
        (DropPath(0.0), "exact"),
        (nn.BatchNorm1d(2), "batch"),
        (nn.Sequential(nn.Dropout(0.1), nn.BatchNorm2d(2)), "batch"),
    ],
)
def test_parity_is_told_by_the_layers(module, parity):
    assert parity_of(nn.Sequential(nn.Linear(2, 2), module)) == parity


def test_batch_norm_step_is_equal_with_checkpointing():
    off, on = (make_config(Norms, SumOutput) for _ in range(2))
    on.ckpt.enabled = True
    states = []
    for config in (off, on):
        step = build_step(config, CPU)
        for seed in range(3):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
            step([{"x": x[:5]}, {"x": x[5:]}], [5, 3])
        states.append(step.model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
