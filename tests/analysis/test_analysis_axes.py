"""What varies: groups, single keys, and what only follows from them."""

from __future__ import annotations

from typing import Any

from analysis_records import plain, record

from analysis.axes import find_axes
from analysis.load import from_records
from sweeper.record import Record


def names(*records: Record, **options: Any) -> list[str]:
    frame = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)]).frame
    return [axis.name for axis in find_axes(frame, **options)]


def test_a_group_is_one_axis_however_many_keys_it_sets() -> None:
    assert names(record("fp32"), record("amp"), record("amp", "on")) == ["precision", "ckpt"]


def test_a_key_that_differs_under_one_option_is_its_own_axis() -> None:
    found = names(record("amp", precision__compute="float16"), record("amp"), record("fp32"))
    assert found == ["precision", "precision.compute"]


def test_a_typed_key_is_an_axis_and_one_that_repeats_it_is_none() -> None:
    runs = [
        record(model__input_size=n, data__size=n, overrides=[f"model.input_size={n}"])
        for n in (8, 16)
    ]
    assert names(*runs) == ["model.input_size"]


def test_a_key_that_changes_with_an_axis_is_not_hidden_by_it() -> None:
    runs = [record("fp32", batch=64, overrides=["precision=fp32"])]
    runs += [record("amp", batch=128, overrides=["precision=amp"])]
    assert names(*runs) == ["precision", "batch.size"]


def test_two_typed_keys_that_change_together_are_both_shown() -> None:
    assert names(record(optim__lr=0.1, foo=1), record(optim__lr=0.2, foo=2)) == ["foo", "optim.lr"]


def test_an_untyped_key_that_does_not_follow_is_shown() -> None:
    runs = [record("fp32", hidden=1, overrides=["precision=fp32"])]
    runs += [record("amp", hidden=1, overrides=["precision=amp"])]
    runs += [record("amp", hidden=2, overrides=["precision=amp"])]
    assert names(*runs) == ["precision", "hidden"]


def test_tracker_and_sweep_names_are_no_axes() -> None:
    assert names(record(tracker={"mode": "a"}, sweep__name="x"), record(sweep__name="y")) == []


def test_keys_can_be_asked_for() -> None:
    assert names(record("fp32"), record("amp"), by=("batch.size",)) == ["batch.size", "precision"]


def test_null_is_a_value() -> None:
    assert names(record(ckpt__blocks=None), record(ckpt__blocks="a.*")) == ["ckpt.blocks"]
