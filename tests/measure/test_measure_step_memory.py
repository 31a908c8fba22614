"""Peak memory of a step and its parts: known answers, and the allocator's own word for it."""

from collections.abc import Callable, Iterator

import pytest
import torch
from measure_training import (
    ACTIVATIONS,
    DATA,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    Training,
    perceptron,
    total,
)
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.utils.checkpoint import checkpoint

from sweeper.measure.step_memory import measure_step

MIB = 2**20


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_parts_of_a_perceptron_are_as_computed_by_hand() -> None:
    peak, parts = Training(perceptron(), torch.randn(4096, 100)).measure()
    assert parts.parameters_bytes == PARAMETERS
    assert parts.optimizer_bytes == OPTIMIZER
    assert parts.gradients_bytes == GRADIENTS
    assert parts.data_bytes == DATA
    assert parts.activations_bytes is not None
    assert 0 <= parts.activations_bytes - ACTIVATIONS <= 64  # the loss and its gradient: scalars
    assert parts.ema_bytes == parts.buckets_bytes == 0
    assert peak == total(parts)
    assert peak == pytest.approx(PARAMETERS + OPTIMIZER + GRADIENTS + DATA + ACTIVATIONS, abs=128)


def test_gradients_that_are_kept_or_accumulated_are_there_at_the_peak() -> None:
    x = torch.randn(4096, 100)
    for training in (
        Training(perceptron(), x, set_to_none=False),
        Training(perceptron(), x, accumulation=2),
    ):
        peak, parts = training.measure()
        # Autograd makes a layer's new gradient before it adds it to the kept one: in the backward
        # of ReLU the second layer's are already added, so nothing is there twice.
        assert parts.gradients_bytes == PARAMETERS
        assert peak == total(parts)


def test_a_small_batch_peaks_in_the_optimizer() -> None:
    # With a batch of 1 the peak is AdamW's: all gradients, all state, and temporaries of the
    # largest parameter, 100 x 200 x 4 bytes each, which are none of the components.
    peak, parts = Training(perceptron(), torch.randn(1, 100)).measure()
    assert parts.gradients_bytes == PARAMETERS
    assert parts.optimizer_bytes == OPTIMIZER
    assert parts.remainder_bytes is not None
    assert parts.remainder_bytes >= 100 * 200 * 4
    assert parts.activations_bytes is not None
    assert parts.activations_bytes <= 64
    assert peak == total(parts)


def test_state_that_comes_into_being_in_the_step_is_the_optimizers() -> None:
    model, x = perceptron(), torch.randn(1, 100)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def persistent() -> dict[str, list[Tensor]]:
        state = [v for s in optimizer.state.values() for v in s.values()]
        return {"parameters": list(model.parameters()), "optimizer": state}

    _, parts = measure_step(step, persistent, [x])
    assert parts.optimizer_bytes == OPTIMIZER


class Blocks(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer
        self.layers = nn.ModuleList(
            layer(96, 4, 384, dropout=0.1, batch_first=True, norm_first=True) for _ in range(4)
        )
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return x


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 1),
        nn.AdaptiveAvgPool2d(1),
    )


def allocators_peak(training: Training) -> int:
    """The truth: persistent bytes, and on top what the allocator handed out in a plain step."""
    kept = {t.untyped_storage().data_ptr(): t for ts in training.persistent().values() for t in ts}
    kept[training.x.untyped_storage().data_ptr()] = training.x
    with profile(profile_memory=True) as profiler:
        training.step()
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest + sum(t.untyped_storage().nbytes() for t in kept.values())


CASES: dict[str, Callable[[], Training]] = {
    "transformer": lambda: Training(Blocks(False), torch.randn(8, 48, 96)),
    "checkpointed": lambda: Training(Blocks(True), torch.randn(8, 48, 96)),
    "accumulated": lambda: Training(Blocks(False), torch.randn(8, 48, 96), accumulation=2),
    "bf16": lambda: Training(Blocks(False), torch.randn(8, 48, 96), bf16=True),
    "bf16 checkpointed": lambda: Training(Blocks(True), torch.randn(8, 48, 96), bf16=True),
    "small batch": lambda: Training(Blocks(False), torch.randn(1, 2, 96)),
    "convolutions": lambda: Training(convolutions(), torch.randn(4, 3, 32, 32)),
    # bf16 convolutions on a CPU need large workspaces within single operators.
    "bf16 convolutions": lambda: Training(convolutions(), torch.randn(4, 3, 32, 32), bf16=True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_the_allocators(case: str) -> None:
    training = CASES[case]()
    truth = allocators_peak(training)
    peak, parts = training.measure()
    assert peak == pytest.approx(truth, abs=64)  # a few scalars' bytes; 0.5 % would be thousands
    assert peak == total(parts)
    assert parts.remainder_bytes is not None
    assert parts.remainder_bytes >= 0


def test_under_a_profiler_of_the_users_own_live_storages_are_counted() -> None:
    training = Training(perceptron(), torch.randn(4096, 100))
    with profile(profile_memory=True):
        peak, parts = training.measure()
    assert peak == total(parts) == pytest.approx(training.measure()[0], abs=64)


def test_two_measurements_agree_to_the_byte() -> None:
    training = CASES["checkpointed"]()
    assert training.measure() == training.measure()
    assert CASES["checkpointed"]().measure() == training.measure()


def test_checkpointing_lowers_activations_and_nothing_else() -> None:
    _, off = Training(Blocks(False), torch.randn(32, 48, 96)).measure()
    _, on = Training(Blocks(True), torch.randn(32, 48, 96)).measure()
    assert on.activations_bytes is not None
    assert off.activations_bytes is not None
    assert on.activations_bytes < 0.6 * off.activations_bytes
    assert on.parameters_bytes == off.parameters_bytes
    assert on.optimizer_bytes == off.optimizer_bytes


def test_measuring_does_not_change_what_a_step_computes() -> None:
    plain, measured = (Training(Blocks(True), torch.ones(4, 8, 96), accumulation=2) for _ in "ab")
    torch.manual_seed(1)
    plain.step()
    torch.manual_seed(1)
    measured.measure()
    pairs = zip(plain.model.parameters(), measured.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_later_smaller_measurement_is_not_hidden_by_an_earlier_larger_one() -> None:
    # C28
    peaks = []
    for n in (15, 10, 5, 1):
        peak, _ = measure_step(lambda n=n: torch.empty(1000 * n, 1000 * n).zero_(), dict)
        peaks.append(peak)
    assert peaks == [4 * (1000 * n) ** 2 for n in (15, 10, 5, 1)]
    assert [round(p / MIB, 1) for p in peaks] == [858.3, 381.5, 95.4, 3.8]


def test_views_resizes_and_reused_addresses() -> None:
    def step() -> None:
        a = torch.empty(1000)  # 4000 bytes
        b = a.view(10, 100)[1:]
        b.add_(1)  # in place, on a view: nothing new
        del a  # b keeps the storage alive
        for _ in range(50):
            c = torch.empty(1000)  # freed every time; the next one gets its address
            del c
        b.untyped_storage().resize_(16_000)
        b.untyped_storage().resize_(0)
        del b

    peak, parts = measure_step(step, dict)
    assert peak == 16_000 + 4000  # a storage grows by allocating anew and copying
    assert parts.activations_bytes == 16_000
    assert parts.remainder_bytes == 4000


def test_a_gradient_about_to_be_added_to_the_kept_one_is_a_gradient() -> None:
    model, x = nn.Linear(1000, 1000, bias=False), torch.ones(1, 1000)
    weight = 1000 * 1000 * 4

    def step() -> None:
        for _ in range(2):
            model(x).sum().backward()
        model.zero_grad()

    peak, parts = measure_step(step, lambda: {"parameters": list(model.parameters())}, [x])
    # Autograd adds in place, as without a measurement: a third, their sum, never exists.
    assert parts.gradients_bytes == 2 * weight
    assert peak == pytest.approx(3 * weight, rel=0.005)


def test_what_a_caller_drops_in_the_step_is_not_there_afterwards() -> None:
    held = [torch.empty(1_000_000)]

    def step() -> None:
        held.clear()
        torch.empty(500_000)

    peak, parts = measure_step(step, lambda: {"ema": held})
    assert (peak, parts.ema_bytes, parts.activations_bytes) == (4_000_000, 4_000_000, 0)


def test_gradients_dropped_at_the_start_of_a_step_are_not_counted_with_its_activations() -> None:
    training = Training(perceptron(), torch.randn(4096, 100))
    at_the_end, _ = training.measure()

    def step() -> None:
        training.optimizer.zero_grad()
        training.model(training.x).pow(2).mean().backward()
        training.optimizer.step()

    step()
    peak, _ = measure_step(step, training.persistent, [training.x])
    assert peak == pytest.approx(at_the_end, abs=64)
