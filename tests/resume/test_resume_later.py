"""An interruption after many steps leaves no trace in the losses either."""

from __future__ import annotations

from single_run import MakeRun


def test_losses_after_a_late_interruption_are_equal_bit_for_bit(make_run: MakeRun) -> None:
    overrides = ("train.steps=60", "batch.size=16", "model.depth=4")
    whole, parted = make_run(*overrides), make_run(*overrides)
    assert whole.attempt(0) == [0]
    parted.attempt(0, "0:step43:signal")
    assert parted.attempt(1) == [0]
    assert parted.record.attempt == 1
    assert parted.column("loss") == whole.column("loss")
    assert parted.record.loss.validation_last == whole.record.loss.validation_last
