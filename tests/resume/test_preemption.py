"""Ranks agree on a step to stop at, whenever and wherever they are asked to."""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import PrefixStore, TCPStore

from sweeper.preemption import Preempted, Preemption
from sweeper.snapshot import SNAPSHOT_FILE, Snapshot, SnapshotError

STEPS = 8


class Device:
    """Does steps in order, each together with the other ranks' devices, behind the host's back."""

    def __init__(self, together: threading.Barrier) -> None:
        self._together = together
        self._steps: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done = threading.Condition()
        self._given = self._finished = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def give(self) -> None:
        self._given += 1
        self._steps.put(self._given)

    def synchronize(self) -> None:
        with self._done:
            assert self._done.wait_for(lambda: self._finished == self._given, timeout=20)

    def end(self) -> None:
        self._steps.put(None)

    def _work(self) -> None:
        while self._steps.get() is not None:
            self._together.wait(20)  # as gradients are averaged
            with self._done:
                self._finished += 1
                self._done.notify_all()


@pytest.fixture(scope="module")
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))


def stops(server: TCPStore, trial: int, world_size: int, host_waits: bool) -> list[int]:
    """The step after which each rank stops, with requests and delays at random."""
    chance = random.Random(trial)
    together = threading.Barrier(world_size)
    asked_at = {rank: chance.randrange(STEPS + 2) for rank in range(world_size)}
    for rank in chance.sample(range(world_size), chance.randrange(world_size)):
        asked_at[rank] = -1  # only some hear the signal themselves
    found = [-1] * world_size

    def rank_main(rank: int) -> None:
        own = random.Random(f"{trial}/{rank}")
        client = TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=20))
        device, preemption = Device(together), Preemption()
        store = PrefixStore(f"{trial}", client)
        done = 0
        with preemption.between(store, rank, world_size, device.synchronize):
            while done < STEPS:
                if done == asked_at[rank]:
                    preemption.ask()
                if own.random() < 0.3:
                    time.sleep(own.random() * 0.005)
                if preemption.due(done):
                    break
                device.give()
                if host_waits:
                    device.synchronize()
                done += 1
            device.synchronize()
        device.end()
        found[rank] = done

    threads = [threading.Thread(target=rank_main, args=(r,)) for r in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


@pytest.mark.parametrize("host_waits", [True, False], ids=["CPU", "host ahead of the device"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_all_ranks_stop_after_the_same_step(
    server: TCPStore, world_size: int, host_waits: bool
) -> None:
    for trial in range(8):
        number = trial + 1000 * world_size + 10000 * host_waits
        found = stops(server, number, world_size, host_waits)
        assert len(set(found)) == 1, (trial, found)
        assert 0 <= found[0] <= STEPS


def test_one_rank_stops_at_once_and_nobody_unasked() -> None:
    preemption = Preemption()
    with preemption.between(None, 0, 1, lambda: None):
        assert not preemption.due(3)
        preemption.ask()
        assert preemption.due(3)


def test_the_handler_before_is_back_afterwards() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    try:
        with Preemption() as preemption:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert preemption.asked
        assert heard == []
        os.kill(os.getpid(), signal.SIGUSR2)
        assert heard == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_the_exception_says_where() -> None:
    assert str(Preempted(7)) == "preempted at step 7"


def snapshot(step: int) -> Snapshot:
    weights = {"model": {"weight": torch.arange(5000.0)}}
    return Snapshot(
        config_id="c", device="cpu", step=step, training=weights, figures={}, ranks=[{}]
    )


@pytest.mark.parametrize("damage", ["truncated", "empty", "one byte", "text", "foreign"])
def test_a_damaged_snapshot_is_told_from_a_good_one(tmp_path: Path, damage: str) -> None:
    snapshot(3).save(tmp_path)
    path = tmp_path / SNAPSHOT_FILE
    content = bytearray(path.read_bytes())
    loaded = Snapshot.load(tmp_path)
    assert loaded is not None
    assert loaded.step == 3
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "one byte":
        content[len(content) // 2] ^= 1  # in the weights
        path.write_bytes(content)
    elif damage == "text":
        path.write_text("not a snapshot")
    else:
        torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(SnapshotError, match=r"truncated or damaged|no snapshot"):
        Snapshot.load(tmp_path)


def test_a_changed_model_is_named(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    with pytest.raises(SnapshotError, match="the model's code has changed since: bias, weight"):
        snapshot(1).check("c", "cpu", 1, model)
