"""One rank of one run, from its config to its figures.

    set up -> validate -> warm up -> measured window -> memory step -> validate

Every rank goes through the same; what the run tells the outside is `sweeper.report`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from sweeper.config import Config, Split, check
from sweeper.data.evaluation import evaluation_batches
from sweeper.data.loader import Loader, StepBatch
from sweeper.data.sampler import GlobalSampler
from sweeper.device import choose_device, limited, memory_limit_bytes
from sweeper.errors import DivergedError
from sweeper.instantiate import build
from sweeper.measure.clock import StepClock
from sweeper.measure.environment import hardware, software
from sweeper.measure.memory import MemoryMeter, parts_by_difference
from sweeper.measure.memory import combine_ranks as combine_memory
from sweeper.measure.sampler import UtilizationSampler
from sweeper.measure.step_memory import measure_step
from sweeper.measure.timing import combine_ranks as combine_time
from sweeper.place import Place
from sweeper.ranks import Ranks
from sweeper.record import Loss, Memory, Numerics
from sweeper.report import Report
from sweeper.series import StepRow
from sweeper.training.build import build_step
from sweeper.training.parallel import close_ranks, init_ranks
from sweeper.training.step import StepResult


def run(config: Config) -> float | None:
    """Run this process's rank. Returns the final validation loss, or None without evaluation.

    Raises:
        Exception: whatever ended the run; it has been described in the attempt's directory.
    """
    place = Place.from_environment()
    device = choose_device(config.hardware, place)
    with limited(config.hardware, place, device), Report(config, place) as report:
        group = init_ranks(place, device)
        try:
            _Rank(config, place, device, Ranks(group), report).run()
        except BaseException:
            close_ranks(group, orderly=False)
            raise
        close_ranks(group)
    return report.record.loss.validation_last


class _Rank:
    """What one rank holds while it trains."""

    def __init__(
        self, config: Config, place: Place, device: torch.device, ranks: Ranks, report: Report
    ) -> None:
        self.config, self.place, self.device = config, place, device
        self.ranks, self.report, self.record = ranks, report, report.record
        self.split: Split = check(config)
        self.clock = StepClock(device)
        self.step = build_step(config, device, observer=self.clock, process_group=ranks.group)
        if ranks.group is not None:
            self.clock.time_communication(self.step.replica)
        self.held_out = build(config.data, "data", split="validation")
        training = build(config.data, "data", split="train")
        sampler = GlobalSampler(len(training), self.split.global_batch, config.seed)
        self.loader = Loader(
            training,
            self.step.objective,
            sampler,
            config.seed,
            rank=place.rank,
            world_size=place.world_size,
            accumulation=self.split.accumulation,
            device=device,
        )
        self.meter = MemoryMeter(device)
        self.memory = Memory()
        self.results: list[StepResult] = []
        self.evaluation_s = 0.0

    def run(self) -> None:
        config, record, report = self.config, self.record, self.report
        record.software = software()
        record.hardware = hardware(self.device, self.place)
        record.hardware.memory_limit_bytes = memory_limit_bytes(config.hardware)
        self._describe()
        report.save_draft()
        first = self._validate()
        report.tracker.settle()  # its start must not lie inside the window
        record.time.setup_s = report.elapsed_s()
        started_s = time.perf_counter()
        with self.loader, UtilizationSampler(self.device, self.place.local_rank) as sampler:
            report.phase("warmup")
            self.meter.start()
            self._advance(config.measure.warmup_steps)
            self.meter.end_warmup()
            self._describe()
            report.save_draft()

            report.phase("measure")
            counted = config.measure.memory and self.device.type == "cpu"
            sampler.open_window()
            self.clock.open_window()
            self._advance(config.train.steps - config.measure.warmup_steps - int(counted))
            self.clock.close_window()
            record.utilization = sampler.close_window()
            self.meter.end_window()
            self.memory = self._memory(counted)
        training_s = time.perf_counter() - started_s
        report.phase("evaluate")
        last = self._validate()
        report.phase("save")
        self._collect(first, last, training_s)
        report.phase("done")

    def _advance(self, steps: int) -> None:
        for _ in range(steps):
            self._one_step()

    def _one_step(self) -> None:
        self.clock.begin_step()
        batch = next(self.loader)
        result = self.step(
            batch.micro_batches, batch.weights, global_weight=self._global_weight(batch)
        )
        self.clock.end_step()
        self.results.append(result)
        self.report.progress(step=len(self.results), step_time_s=self.clock.recent_step_s())
        if self.device.type == "cpu":  # reading a loss does not wait for anything there
            self._check(float(result.loss))

    def _memory(self, counted: bool) -> Memory:
        """The rank's memory; on the CPU its tensors are counted on one more step."""
        if counted:
            return self.meter.result(measure_step(self._one_step, self.step.persistent_tensors))
        peak_bytes = self.meter.result().warm.peak_allocated_bytes
        if peak_bytes is None:
            return self.meter.result()
        return self.meter.result(parts_by_difference(peak_bytes, self.step.persistent_tensors()))

    def _global_weight(self, batch: StepBatch) -> int | None:
        """Units of the global batch where they are known without asking the other ranks."""
        share = 0
        for weight in batch.weights:
            if not isinstance(weight, int):
                return None
            share += weight
        # check() made sure that the batch divides, so all ranks have equal shares.
        return share * self.ranks.count

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} in step {len(self.results) - 1}")
        self.report.progress(loss=loss * self.ranks.count)

    def _validate(self) -> tuple[float, int] | None:
        """Mean held-out loss and the number of samples; None where no evaluation is asked for."""
        samples = min(self.config.evaluate.samples, len(self.held_out))
        if samples == 0:
            return None
        started_s = time.perf_counter()
        batches = evaluation_batches(
            self.held_out,
            self.step.objective,
            self.config.seed,
            self.place.rank,
            self.place.world_size,
            self.config.evaluate.batch,
            samples,
            self.device,
        )
        total, weight = self.step.evaluate(batches)
        mean = float(self.ranks.sum(total) / self.ranks.sum(weight))
        self.evaluation_s += time.perf_counter() - started_s
        return mean, samples

    def _describe(self) -> None:
        self.record.numerics = Numerics(
            **self.step.describe(),
            global_batch=self.split.global_batch,
            micro_batch=self.split.micro_batch,
        )

    def _collect(
        self, first: tuple[float, int] | None, last: tuple[float, int] | None, training_s: float
    ) -> None:
        """Bring the ranks' figures together in the record."""
        record = self.record
        losses = self.ranks.sum(torch.stack([r.loss for r in self.results])).tolist()
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise DivergedError(f"the loss is {loss} in step {index}")
        setup_s = record.time.setup_s
        record.time = combine_time(self.ranks.gather(self.clock.time(self.split.global_batch)))
        record.time.setup_s = setup_s
        record.time.training_s = training_s
        record.time.evaluation_s = self.evaluation_s
        record.memory = combine_memory(self.ranks.gather(self.memory))
        record.hardware.hosts = sorted(
            {host for hosts in self.ranks.gather(record.hardware.hosts) for host in hosts}
        )
        norm = self.results[-1].grad_norm
        record.loss = Loss(
            train_first=losses[0],
            train_last=losses[-1],
            validation_first=None if first is None else first[0],
            validation_last=None if last is None else last[0],
            validation_samples=None if last is None else last[1],
            optimizer_steps=self.step.update.updates,
            skipped_steps=self.step.update.skipped,
            loss_scale=self.step.update.loss_scale,
            grad_norm_last=None if norm is None else float(norm),
        )
        self.report.rows = self._rows(losses)

    def _rows(self, losses: Sequence[float]) -> list[StepRow]:
        return [
            StepRow(
                step=index,
                loss=loss,
                lr=float(result.lr),
                step_time_s=timed.step_time_s,
                measured=timed.measured,
                grad_norm=None if result.grad_norm is None else float(result.grad_norm),
                skipped=None if result.skipped is None else bool(result.skipped),
            )
            for index, (loss, result, timed) in enumerate(
                zip(losses, self.results, self.clock.steps(), strict=True)
            )
        ]
