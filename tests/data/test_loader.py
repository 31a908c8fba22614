"""The loader: the same batches with and without a thread, and a thread that always ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sweeper.data.keyed import Keys
from sweeper.data.loader import Loader, StepBatch
from sweeper.data.sampler import GlobalSampler
from sweeper.errors import UserError
from sweeper.models.objective import Batch, LossSum

LENGTH = 10


class Numbers:
    """Item i is the number i; calls `watch` before every read."""

    def __init__(self, watch: Callable[[], None] = lambda: None) -> None:
        self.watch = watch

    def __len__(self) -> int:
        return LENGTH

    def items(self, indices: Tensor) -> Batch:
        self.watch()
        return {"number": indices.float()}


class Noisy:
    """Adds keyed noise; weighs a batch by the numbers' sum, as data-dependent weights do."""

    def sample(self, items: Batch, keys: Keys) -> Batch:
        return {**items, "noise": keys.uniform("noise")}

    def weight(self, batch: Batch) -> Tensor:
        return batch["number"].sum()

    def loss(self, model: nn.Module, batch: Batch) -> LossSum:
        raise NotImplementedError


def loader(
    dataset: Numbers | None = None,
    rank: int = 0,
    world_size: int = 1,
    accumulation: int = 1,
    start_step: int = 0,
    prefetch: int = 2,
    workers: int = 1,
) -> Loader:
    return Loader(
        dataset or Numbers(),
        Noisy(),
        GlobalSampler(LENGTH, batch=8, seed=0),
        seed=0,
        rank=rank,
        world_size=world_size,
        accumulation=accumulation,
        start_step=start_step,
        prefetch=prefetch,
        workers=workers,
    )


def take(source: Loader, count: int) -> list[StepBatch]:
    return [next(source) for _ in range(count)]


def content(batches: list[StepBatch]) -> list[tuple[int, list[dict[str, list[float]]]]]:
    return [
        (b.step, [{k: v.tolist() for k, v in m.items()} for m in b.micro_batches]) for b in batches
    ]


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("sweeper-loader")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> object:
    yield
    assert not threads()


def test_batches_are_the_same_with_and_without_threads() -> None:
    with loader(prefetch=0) as plain:
        expected = content(take(plain, 7))
        assert not threads()
    with loader(prefetch=2) as ahead:
        assert content(take(ahead, 7)) == expected
        assert len(threads()) == 1
    with loader(prefetch=4, workers=3) as many:
        assert content(take(many, 7)) == expected
        assert len(threads()) == 3


def test_a_slow_step_does_not_let_later_steps_pass() -> None:
    delays = iter([0.3, *[0.0] * 20])
    with loader(Numbers(lambda: time.sleep(next(delays))), prefetch=4, workers=2) as source:
        assert [batch.step for batch in take(source, 5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 4), (4, 1), (2, 2), (3, 2)])
def test_every_split_of_a_step_holds_the_same_samples_and_noise(
    world_size: int, accumulation: int
) -> None:
    with loader() as whole:
        (expected,) = take(whole, 1)[0].micro_batches
    parts: list[Batch] = []
    for rank in range(world_size):
        with loader(rank=rank, world_size=world_size, accumulation=accumulation) as share:
            batch = next(share)
            assert len(batch.micro_batches) == accumulation
            parts += batch.micro_batches
    for name in expected:
        assert torch.equal(torch.cat([part[name] for part in parts]), expected[name])


def test_weights_are_the_objective_s() -> None:
    with loader(accumulation=2) as source:
        batch = next(source)
        for weight, micro_batch in zip(batch.weights, batch.micro_batches, strict=True):
            assert isinstance(weight, Tensor)
            assert weight.item() == micro_batch["number"].sum().item()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loader_continues_where_another_stopped(prefetch: int) -> None:
    with loader(prefetch=prefetch) as source:
        expected = content(take(source, 6))
    with loader(prefetch=prefetch) as first:
        take(first, 2)
        state = first.state_dict()
    assert state == {"next_step": 2}
    with loader(prefetch=prefetch) as second:
        take(second, 1)  # what it had built ahead is dropped
        second.load_state_dict(state)
        assert content(take(second, 4)) == expected[2:]
    with loader(prefetch=prefetch, start_step=4) as third:
        assert content(take(third, 2)) == expected[4:]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_an_error_while_reading_reaches_the_caller_at_its_step(prefetch: int) -> None:
    reads = iter(range(100))

    def fail_at_the_third() -> None:
        if next(reads) == 2:
            raise OSError("the disk is gone")

    with loader(Numbers(fail_at_the_third), prefetch=prefetch) as source:
        assert [batch.step for batch in take(source, 2)] == [0, 1]
        with pytest.raises(OSError, match="the disk is gone"):
            next(source)
        assert source.state_dict() == {"next_step": 2}


def test_the_thread_runs_ahead_by_no_more_than_it_may() -> None:
    reads: list[float] = []
    with loader(Numbers(lambda: reads.append(0)), prefetch=2) as source:
        next(source)
        deadline = time.monotonic() + 10
        while len(reads) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)  # time enough to overrun
        assert len(reads) == 3  # one taken, two ahead


def test_close_ends_a_thread_that_waits_and_one_that_reads() -> None:
    full = loader()
    next(full)
    full.close()
    full.close()
    assert not threads()
    assert list(full) == []
    slow = loader(Numbers(lambda: time.sleep(0.05)))
    next(slow)
    slow.close()
    assert not threads()


def test_a_loader_that_was_never_read_starts_no_thread() -> None:
    loader()
    assert not threads()


def test_a_batch_of_the_wrong_size_is_refused() -> None:
    class Wrong(Numbers):
        def items(self, indices: Tensor) -> Batch:
            return {"number": torch.zeros(3)}

    with (
        pytest.raises(UserError, match=r"'number' in a batch of 8 samples is \(3,\)"),
        loader(Wrong()) as source,
    ):
        next(source)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_reach_a_gpu_whole(prefetch: int) -> None:
    arguments = (Numbers(), Noisy(), GlobalSampler(LENGTH, batch=8, seed=0), 0)
    with Loader(*arguments, device="cuda", prefetch=prefetch) as gpu, loader(prefetch=0) as cpu:
        assert gpu.build(0).micro_batches[0]["number"].is_pinned()
        found, expected = take(gpu, 5), take(cpu, 5)
        assert all(b.micro_batches[0]["number"].is_cuda for b in found)
        assert all(isinstance(w, Tensor) and w.is_cuda for b in found for w in b.weights)
        assert content(found) == content(expected)
