"""Batches of one rank: built ahead by a thread, copied to the device when they are due."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType

import torch

from sweeper.data.batch import Weight, build_batch, pin, to_device
from sweeper.data.dataset import Dataset
from sweeper.data.keyed import Keys
from sweeper.data.sampler import GlobalSampler, rank_share
from sweeper.models.objective import Batch, Objective


@dataclass
class StepBatch:
    """One rank's part of one step.

    Attributes:
        step: optimizer step, counted from 0.
        micro_batches: in order of use; empty ones are left out.
        weights: units each micro-batch's loss sums over, as `Objective.weight` gives them.
    """

    step: int
    micro_batches: list[Batch] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)

    def add(self, batch: Batch, weight: Weight) -> None:
        self.micro_batches.append(batch)
        self.weights.append(weight)


class Loader:
    """Endless iterator over steps. Close it, or use it as a context, to end its threads.

    Threads read the data, draw what is random and pin memory for up to `prefetch` steps ahead; the
    copy to the device is queued by the caller's own thread. An error in a thread is raised by the
    caller's `next`, at the step it belongs to.

    Args:
        dataset: what to read.
        objective: draws what is random, and weighs.
        sampler: says which samples a step trains on.
        seed: the run's seed.
        rank: this rank.
        world_size: number of ranks.
        accumulation: micro-batches per step and rank.
        device: where batches go.
        start_step: step of the first batch.
        prefetch: steps built ahead; 0 = no thread, each batch is built when asked for.
        workers: threads that build steps. With more than one, `dataset` and `objective` are called
            by several threads at once; batches keep their order.
    """

    def __init__(
        self,
        dataset: Dataset,
        objective: Objective,
        sampler: GlobalSampler,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        accumulation: int = 1,
        device: torch.device | str = "cpu",
        start_step: int = 0,
        prefetch: int = 2,
        workers: int = 1,
    ) -> None:
        self.dataset = dataset
        self.objective = objective
        self.sampler = sampler
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.accumulation = accumulation
        self.device = torch.device(device)
        self.next_step = start_step
        self.prefetch = prefetch
        self.workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[StepBatch]] = deque()  # from next_step on, one a step
        self._closed = False

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> StepBatch:
        if self._closed:
            raise StopIteration
        if self.prefetch == 0:
            batch = self.build(self.next_step)
        else:
            self._fill()
            batch = self._ahead[0].result()
            self._ahead.popleft()
        self.next_step += 1
        if self.prefetch > 0:
            self._fill()  # the next steps are built while the caller works on this one
        moved = StepBatch(batch.step)
        for micro_batch, weight in zip(batch.micro_batches, batch.weights, strict=True):
            moved.add(*to_device(micro_batch, weight, self.device))
        return moved

    def _fill(self) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self.workers, thread_name_prefix="sweeper-loader", initializer=self._enter_thread
            )
        while len(self._ahead) < self.prefetch:
            self._ahead.append(self._pool.submit(self.build, self.next_step + len(self._ahead)))

    def _enter_thread(self) -> None:
        if self.device.type == "cuda":
            # Pinning makes a context on the thread's current device, which is GPU 0 otherwise.
            torch.cuda.set_device(self.device)

    def build(self, step: int) -> StepBatch:
        """The step's batch on the CPU, in pinned memory where the device is CUDA."""
        batch = StepBatch(step)
        indices = self.sampler.indices(step)
        for samples in rank_share(indices, self.rank, self.world_size, self.accumulation):
            if len(samples):
                keys = Keys(self.seed, step, samples)
                micro_batch, weight = build_batch(self.dataset, self.objective, keys)
                if self.device.type == "cuda":
                    micro_batch, weight = pin(micro_batch, weight)
                batch.add(micro_batch, weight)
        return batch

    def state_dict(self) -> dict[str, int]:
        """The step that comes next; batches built ahead do not count."""
        return {"next_step": self.next_step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the state's step; batches built ahead are dropped."""
        self._stop()
        self.next_step = state["next_step"]

    def close(self) -> None:
        """End the threads and wait for them; `next` then stops. May be called twice."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._ahead.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
