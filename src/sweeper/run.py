"""One run on this process's rank, and how it ends."""

from __future__ import annotations

from sweeper.config import Config
from sweeper.device import choose_device, limited, reproducible
from sweeper.place import Place
from sweeper.preemption import Preempted, Preemption
from sweeper.ranks import Ranks
from sweeper.report import Report
from sweeper.snapshot import remove as remove_snapshot
from sweeper.trainer import Trainer
from sweeper.training.parallel import close_ranks, init_ranks


def run(config: Config) -> float | None:
    """Run this process's rank. Returns the final validation loss, or None without evaluation.

    Raises:
        Preempted: it was asked to stop, and its next attempt can continue it; no record is written.
        Superseded: its next attempt has begun already; nothing is written.
        Exception: whatever ended the run; it has been described in the attempt's directory.
    """
    place = Place.from_environment()
    device = choose_device(config.hardware, place)
    with (
        Preemption() as preemption,
        limited(config.hardware, place, device),
        reproducible(config.repro),
        Report(config, place) as report,
    ):
        group = init_ranks(place, device)
        try:
            ranks = Ranks(group)
            trainer = Trainer(config, place, device, ranks, report, preemption)
            with preemption.between(
                ranks.store, place.rank, ranks.count, trainer.clock.synchronize
            ):
                try:
                    trainer.run()
                except BaseException as error:
                    trainer.ended_by(error)
                    raise
        except Preempted:
            close_ranks(group)
            raise
        except BaseException:
            close_ranks(group, orderly=False)
            raise
        close_ranks(group)
    if place.rank == 0:
        remove_snapshot(place.run_dir)  # the record is written
    return report.record.loss.validation_last
