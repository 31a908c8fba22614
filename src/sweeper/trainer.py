"""One rank of one run, from its config to its figures.

    set up -> validate -> warm up -> measured window -> memory step -> validate

Every rank goes through the same; what the run tells the outside is `sweeper.report`. Asked to stop
between two steps, it saves what it has (`sweeper.resume`), and the next attempt goes on from there:
it warms up and measures the steps that are left.
"""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import torch
from torch import Tensor

from sweeper.collect import (
    OwnFigures,
    Validation,
    check_rows,
    collect_figures,
    collect_losses,
    loss_summary,
    step_rows,
)
from sweeper.config import Config, Split, check
from sweeper.data.evaluation import evaluation_batches
from sweeper.data.loader import Loader, StepBatch
from sweeper.data.sampler import GlobalSampler
from sweeper.device import memory_limit_bytes
from sweeper.errors import DivergedError
from sweeper.global_weight import GlobalWeight
from sweeper.instantiate import build
from sweeper.measure.clock import StepClock
from sweeper.measure.environment import hardware, software
from sweeper.measure.flops import FlopsMeter
from sweeper.measure.memory import MemoryMeter, known_parts
from sweeper.measure.sampler import UtilizationSampler
from sweeper.measure.step_memory import measure_step
from sweeper.place import Place
from sweeper.preemption import Preempted, Preemption
from sweeper.ranks import Ranks
from sweeper.record import Memory, Numerics, Time
from sweeper.report import Report
from sweeper.resume import Progress
from sweeper.training.build import build_step


class Trainer:
    """What one rank holds while it trains."""

    def __init__(
        self,
        config: Config,
        place: Place,
        device: torch.device,
        ranks: Ranks,
        report: Report,
        preemption: Preemption,
    ) -> None:
        self.config, self.place, self.device = config, place, device
        self.preemption = preemption
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
            prefetch=config.loader.prefetch,
            workers=config.loader.workers,
        )
        self.global_weight = GlobalWeight(ranks, device, self.split.global_batch)
        self.meter = MemoryMeter(device)
        self.flops = FlopsMeter()
        self.memory = Memory()
        self.batch: StepBatch | None = None  # the step's own
        self.started_s = 0.0  # the first step of this attempt
        self.progress = Progress(
            place, ranks, self.record, self.step, self.loader, self.clock, config.train.steps
        )
        self.results = self.progress.results

    def run(self) -> None:
        record, report, progress = self.record, self.report, self.progress
        record.software = software(Path(__file__).parent)  # of the code, wherever it is run
        record.hardware = hardware(self.device, self.place)
        record.hardware.memory_limit_bytes = memory_limit_bytes(self.config.hardware)
        self._describe()
        report.save_draft()
        resumed = progress.resume()
        record.time.setup_s = report.elapsed_s()
        if not resumed:
            progress.validation_first = self._validate()
        report.tracker.settle()  # its start must not lie inside the window
        self.started_s = time.perf_counter()
        with self.loader, UtilizationSampler(self.device, self.place.local_rank) as sampler:
            if self.results.count < self.config.train.steps:
                self._train(sampler)
            else:
                self.memory = progress.memory(self.memory)
        training_s = self._training_s()
        report.phase("evaluate")
        last = self._validate()
        report.phase("save")
        self._collect(progress.validation_first, last, training_s, sampler)
        report.phase("done")

    def _train(self, sampler: UtilizationSampler) -> None:
        """All steps that are left.

        Raises:
            Preempted: the snapshot is saved, all ranks have done the same steps.
        """
        config, report = self.config, self.report
        counted = config.measure.memory
        timed = config.train.steps - int(counted)
        report.phase("warmup")
        self.meter.start()
        stop = self._advance(min(self.results.count + config.measure.warmup_steps, timed))
        self.meter.end_warmup()
        self.results.check_finite()  # the device has been waited for
        if self.results.count > self.progress.resumed_at:  # a forward pass has been seen
            self._describe()
        report.save_draft()
        if not stop and self.results.count < timed:
            report.phase("measure")
            sampler.open_window()
            self.clock.open_window()
            stop = self._advance(timed)
            self.clock.close_window()
            self.record.utilization = sampler.close_window()
            self.meter.end_window()
        self.memory = self.progress.memory(self._memory(counted and not stop))
        # Asked in the last steps, the run goes on to its end; should it not get there, only the
        # evaluation has to be done again.
        if stop or not self.ranks.all_true(not self.preemption.asked, self.device):
            self.progress.save(self.memory, self._training_s())
        if stop:
            raise Preempted(self.results.count)

    def _training_s(self) -> float:
        self.clock.synchronize()
        return self.progress.training_s + time.perf_counter() - self.started_s

    def _advance(self, steps: int) -> bool:
        """Go on until this many steps are done. Returns whether to stop before."""
        while self.results.count < steps:
            if self.preemption.due(self.results.count):
                return True
            self._one_step()
        return False

    def _one_step(self) -> None:
        self.clock.begin_step()
        batch = self.batch = next(self.loader)
        result = self.step(
            batch.micro_batches, batch.weights, global_weight=self.global_weight(batch)
        )
        self.clock.end_step()
        self.results.add(result)
        self.report.progress(step=self.results.count, step_time_s=self.clock.recent_step_s())
        if self.device.type == "cpu":  # reading a loss does not wait for anything there
            self._check(float(result.loss), bool(result.skipped))

    def _memory(self, counted: bool) -> Memory:
        """The rank's memory; its parts, and FLOPs, are counted on one more step."""
        if not counted and self.device.type == "cpu":
            return self.meter.result()  # without the step there is no peak to divide
        if not counted:
            return self.meter.result(known_parts(self._persistent(), self.device.type))
        step = measure_step(self._counted_step, self._persistent, device_type=self.device.type)
        return self.meter.result(step)

    def _counted_step(self) -> None:
        self.flops.count(self._one_step)

    def _persistent(self) -> dict[str, list[Tensor]]:
        """What is not made by the step at hand, by component."""
        batches = self.batch.micro_batches if self.batch else []
        data = [tensor for micro_batch in batches for tensor in micro_batch.values()]
        return {**self.step.persistent_tensors(), "data": data}

    def _check(self, loss: float, skipped: bool) -> None:
        """A step that gradient scaling left out may have a loss that is not finite."""
        if math.isfinite(loss):
            self.report.progress(loss=loss * self.ranks.count)
        elif not skipped:
            raise DivergedError(f"the loss is {loss} in step {self.results.count - 1}")

    def _validate(self) -> Validation | None:
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
        self.progress.evaluation_s += time.perf_counter() - started_s
        return mean, samples

    def _describe(self) -> None:
        self.record.numerics = Numerics(
            **self.step.describe(),
            global_batch=self.split.global_batch,
            micro_batch=self.split.micro_batch,
        )

    def _collect(
        self,
        first: Validation | None,
        last: Validation | None,
        training_s: float,
        sampler: UtilizationSampler,
    ) -> None:
        """Bring the ranks' figures together in the record and the series."""
        record, report = self.record, self.report
        losses = collect_losses(self.results, self.ranks)
        record.time.training_s = training_s
        record.time.evaluation_s = self.progress.evaluation_s
        own = OwnFigures(
            time=self._time(),
            memory=self.memory,
            utilization=record.utilization,
            samples=sampler.series,
            hosts=record.hardware.hosts,
        )
        report.utilization = collect_figures(record, own, self.ranks)
        self._warn_of_few_steps()
        report.rows = step_rows(losses, self.clock.steps(), self.results)
        record.loss = loss_summary(report.rows, self.step.update, first, last)
        check_rows(report.rows)

    def ended_by(self, error: BaseException) -> None:
        """Keep what is known by now, before the error goes on; asks nobody, and never raises."""
        self.clock.abandon()
        with contextlib.suppress(Exception):  # a device may be past answering
            self.meter.interrupted(self.record.memory)
            if isinstance(error, DivergedError) and self.ranks.count == 1 and not self.report.rows:
                losses = self.results.losses().tolist()
                self.report.rows = step_rows(losses, self.clock.steps(), self.results)

    def _time(self) -> Time:
        """The rank's times and FLOPs."""
        dtype = self.record.numerics.compute_dtype
        if dtype == "float32" and self.record.numerics.tf32:
            dtype = "tf32"
        times = self.clock.time(self.split.global_batch)
        return self.flops.complete(times, self.record.hardware.device_name, dtype)

    def _warn_of_few_steps(self) -> None:
        measured, wanted = self.record.time.measured_steps or 0, self.config.measure.steps
        if measured < wanted:
            self.record.warnings.append(
                f"interruptions left {measured} of at least {wanted} steps to measure"
            )
