"""Data-parallel training on real gloo ranks: its exposed communication and its buckets."""

import contextlib
import time
from multiprocessing.queues import SimpleQueue
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from measure_training import GRADIENTS, PARAMETERS, Training, perceptron, total
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sweeper.measure.clock import StepClock
from sweeper.measure.communication import CommunicationTimer
from sweeper.measure.device_clock import HostClock

SLOW_S = 0.25


def _model(bucket_view: bool) -> DistributedDataParallel:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    return DistributedDataParallel(model, gradient_as_bucket_view=bucket_view, bucket_cap_mb=0.05)


def _train(
    rank: int, clock: StepClock, bucket_view: bool, timed: bool, slow: bool, accumulation: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Five steps; the last step's gradients and the parameters after it."""
    model = _model(bucket_view)
    if timed:
        clock.time_communication(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gradients: list[torch.Tensor] = []
    clock.open_window()
    for step in range(5):
        clock.phase("data")
        torch.manual_seed(100 * step + rank)
        for micro in range(accumulation):
            clock.phase("forward")
            last = micro == accumulation - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = model(torch.randn(8, 64)).pow(2).mean()
                if slow and rank == 1 and last:
                    time.sleep(SLOW_S)  # this rank's gradients come late
                clock.phase("backward")
                loss.backward()
        clock.phase("optimizer")
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.end_step()
    clock.close_window()
    return gradients, [p.detach().clone() for p in model.parameters()]


def _rank(rank: int, world: int, init: str, answers: "SimpleQueue[Any]") -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    try:
        answer: dict[str, Any] = {"rank": rank, "equal": []}
        for bucket_view in (True, False):
            for accumulation in (1, 2):
                runs = [
                    _train(rank, StepClock("cpu"), bucket_view, timed, False, accumulation)
                    for timed in (False, True)
                ]
                same = all(
                    torch.equal(a, b)
                    for kind in (0, 1)
                    for a, b in zip(runs[0][kind], runs[1][kind], strict=True)
                )
                answer["equal"].append(same and len(runs[0][0]) == 12)
        clock = StepClock("cpu")
        _train(rank, clock, True, True, slow=True, accumulation=2)
        answer["parts"] = [step.parts for step in clock.steps()]
        answer["total"] = [step.step_time_s for step in clock.steps()]
        answer["memory"] = {}
        for bucket_view in (True, False):
            model = DistributedDataParallel(perceptron(), gradient_as_bucket_view=bucket_view)
            training = Training(model, torch.randn(4096, 100))
            training.step()
            answer["memory"][bucket_view] = training.measure()
        answers.put(answer)
        dist.barrier()
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The answers of two real ranks, in order."""
    rendezvous = tmp_path_factory.mktemp("ranks") / "rendezvous"
    answers = mp.get_context("spawn").SimpleQueue()
    mp.spawn(_rank, (2, f"file://{rendezvous}", answers), nprocs=2)
    return sorted((answers.get() for _ in range(2)), key=lambda answer: int(answer["rank"]))


def test_gradients_are_the_same_with_and_without_the_timer(ranks: list[dict[str, Any]]) -> None:
    # With or without bucket views and accumulation, bit for bit, on both ranks.
    for answer in ranks:
        assert answer["equal"] == [True] * 4


def test_waiting_for_a_slow_rank_is_told_from_the_backward(ranks: list[dict[str, Any]]) -> None:
    fast, slow = ranks
    waited = sorted(p.communication_s for p in fast["parts"])
    waited_slow = sorted(p.communication_s for p in slow["parts"])
    assert waited[2] > 0.6 * SLOW_S
    assert waited_slow[2] < 0.5 * waited[2]
    # Not counted twice.
    for parts, step_time_s in zip(fast["parts"], fast["total"], strict=True):
        known = [parts.data_wait_s, parts.forward_s, parts.backward_s]
        known += [parts.communication_s, parts.optimizer_s]
        assert sum(known) == pytest.approx(step_time_s, rel=1e-9)


def test_communication_buckets_are_counted_once(ranks: list[dict[str, Any]]) -> None:
    peak, parts = ranks[0]["memory"][True]
    # Gradients that are views of the buckets are gradients; one being copied in is there twice.
    assert parts.buckets_bytes == 0
    assert PARAMETERS <= parts.gradients_bytes <= PARAMETERS + GRADIENTS
    assert peak == total(parts)
    peak, parts = ranks[0]["memory"][False]
    assert parts.buckets_bytes == PARAMETERS
    assert parts.gradients_bytes == GRADIENTS
    assert peak == total(parts)


def test_a_mark_is_taken_once_a_backward_and_follows_a_changing_model() -> None:
    taken = []

    class Counting(HostClock):
        def mark(self) -> float:
            taken.append(1)
            return time.perf_counter()

    timer = CommunicationTimer(Counting())
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    timer.attach(nn.ModuleList([first, second]))

    def backward(*layers: nn.Module) -> float | None:
        x = torch.randn(2, 4)
        for layer in layers:
            x = layer(x)
        taken.clear()
        timer.backward_begins()
        x.sum().backward()
        mark: float | None = timer.last_gradient()
        return mark

    assert backward(first, second) is not None
    assert len(taken) == 2  # the number of gradients is not known yet
    assert backward(first, second) is not None
    assert len(taken) == 1
    assert backward(first) is None  # fewer than ever before: not known, and not guessed
    assert backward(first) is not None
    assert backward(first, second) is not None
    assert len(taken) == 2
    timer.detach()
    assert backward(first, second) is None
