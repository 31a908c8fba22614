"""The ranks' figures together: what a run's record says in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.errors import DivergedError
from sweeper.measure.memory import combine_ranks as combine_memory
from sweeper.measure.sampler import UtilizationSample, combine_series
from sweeper.measure.sampler import combine_ranks as combine_utilization
from sweeper.measure.timing import StepTime
from sweeper.measure.timing import combine_ranks as combine_time
from sweeper.ranks import Ranks
from sweeper.record import Loss, Memory, Record, Time, Utilization
from sweeper.results import Results
from sweeper.series import StepRow
from sweeper.training.update import Update

Validation = tuple[float, int]  # mean held-out loss, samples


@dataclass(frozen=True)
class OwnFigures:
    """What one rank measured."""

    time: Time
    memory: Memory
    utilization: Utilization
    samples: Sequence[UtilizationSample]
    hosts: Sequence[str]


def collect_figures(record: Record, own: OwnFigures, ranks: Ranks) -> list[UtilizationSample]:
    """Put the ranks' figures together in the record; a collective call.

    What the record's `time` holds of the run as a whole (set-up, evaluation, training) stays.

    Returns:
        Utilisation over time, the mean over the ranks.
    """
    every: list[OwnFigures] = ranks.gather(own)
    whole = record.time
    record.time = combine_time([figures.time for figures in every])
    record.time.setup_s = whole.setup_s
    record.time.training_s = whole.training_s
    record.time.evaluation_s = whole.evaluation_s
    record.memory = combine_memory([figures.memory for figures in every])
    record.utilization = combine_utilization([figures.utilization for figures in every])
    record.hardware.hosts = sorted({host for figures in every for host in figures.hosts})
    return combine_series([figures.samples for figures in every])


def collect_losses(results: Results, ranks: Ranks) -> list[float]:
    """The whole batch's loss of each step; a collective call."""
    losses: list[float] = ranks.sum(results.losses()).tolist()
    return losses


def check_rows(rows: Sequence[StepRow]) -> None:
    """Check the losses of all steps.

    Raises:
        DivergedError: one is not finite, of a step that was not skipped; or the last one is not.
    """
    for row in rows:
        finite = row.loss is None or math.isfinite(row.loss)
        if not finite and (not row.skipped or row is rows[-1]):
            raise DivergedError(f"the loss is {row.loss} in step {row.step}")


def step_rows(
    losses: Sequence[float], times: Sequence[StepTime], results: Results
) -> list[StepRow]:
    """One row a step: the whole batch's loss, and rank 0's time."""
    columns = (results.values(name) for name in ("lr", "grad_norm", "skipped"))
    return [
        StepRow(index, loss, lr, timed.step_time_s, timed.measured, grad_norm, skipped)
        for index, (loss, timed, lr, grad_norm, skipped) in enumerate(
            zip(losses, times, *columns, strict=True)
        )
    ]


def loss_summary(
    rows: Sequence[StepRow], update: Update, first: Validation | None, last: Validation | None
) -> Loss:
    """First and last losses, and what the optimizer did.

    Args:
        rows: of all steps.
        update: how the optimizer was stepped.
        first: held-out loss before training; None where there is no evaluation.
        last: the same after it.
    """
    return Loss(
        train_first=rows[0].loss,
        train_last=rows[-1].loss,
        validation_first=None if first is None else first[0],
        validation_last=None if last is None else last[0],
        validation_samples=None if last is None else last[1],
        optimizer_steps=update.updates,
        skipped_steps=update.skipped,
        loss_scale=update.loss_scale,
        grad_norm_last=rows[-1].grad_norm,
    )
