"""Draws depend on seed, step, stream and sample, and on nothing else."""

from __future__ import annotations

import numpy as np
import torch

from sweeper.data.keyed import Keys, derive_seed, permutation


def test_a_sample_s_draws_do_not_depend_on_its_neighbours() -> None:
    samples = torch.tensor([7, 2, 90, 2**40])
    whole = Keys(0, 5, samples)
    for place, sample in enumerate(samples):
        alone = Keys(0, 5, sample[None])
        assert torch.equal(whole.normal("a", (2, 3))[place], alone.normal("a", (2, 3))[0])
        assert torch.equal(whole.uniform("a")[place], alone.uniform("a")[0])
        assert torch.equal(whole.integers("a", 1000)[place], alone.integers("a", 1000)[0])


def test_draws_are_those_of_a_generator_made_for_the_sample() -> None:
    draw = Keys(3, -1, torch.tensor([4, 11])).normal("noise", (5,))[1]
    counter = np.array([0, 0, 2**64 - 1, 11], dtype=np.uint64)
    fresh = np.random.Generator(np.random.Philox(key=derive_seed(3, "noise"), counter=counter))
    assert torch.equal(draw, torch.from_numpy(fresh.standard_normal(5, dtype=np.float32)))


def test_seed_step_stream_and_sample_each_change_the_draw() -> None:
    def draw(seed: int = 0, step: int = 0, stream: str = "a", sample: int = 0) -> float:
        return Keys(seed, step, torch.tensor([sample])).uniform(stream).item()

    draws = [draw(), draw(seed=1), draw(step=1), draw(step=-1), draw(stream="b"), draw(sample=1)]
    assert len(set(draws)) == len(draws)


def test_draws_have_the_shape_and_spread_they_promise() -> None:
    keys = Keys(0, 0, torch.arange(2000))
    normal, uniform, integers = keys.normal("n", (4,)), keys.uniform("u"), keys.integers("i", 3)
    assert normal.shape == (2000, 4)
    assert normal.dtype == uniform.dtype == torch.float32
    assert abs(normal.mean().item()) < 0.05
    assert abs(normal.std().item() - 1) < 0.05
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    assert set(integers.tolist()) == {0, 1, 2}
    assert keys.normal("n", ()).shape == (2000,)


def test_permutation_holds_each_position_once_and_follows_its_parts() -> None:
    order = permutation(1000, 0, "order", 1)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert torch.equal(order, permutation(1000, 0, "order", 1))
    assert not torch.equal(order, permutation(1000, 0, "order", 2))


def test_permutation_is_the_same_on_every_machine() -> None:
    assert permutation(8, "digits").tolist() == [4, 2, 0, 7, 5, 3, 6, 1]
