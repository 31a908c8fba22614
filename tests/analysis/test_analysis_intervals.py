"""Intervals beside every change, and rows of runs that did not complete, by hand."""

from __future__ import annotations

import math

import pytest
from analysis_records import MIB, plain, record, row

from analysis import render, tables
from analysis.load import from_records
from analysis.study import Study
from analysis.table import Table
from sweeper.record import MemoryParts, Record, StepParts


def made(name: str, *records: Record) -> Table:
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])
    table = tables.TABLES[name](Study(found))
    assert table is not None
    return table


def repeats(
    precision: str, ckpt: str, steps: tuple[float, ...], losses: float = 0.0
) -> list[Record]:
    return [
        record(
            precision,
            ckpt,
            repeat=i,
            step_s=step,
            loss=4.0 - i * losses,
            validation=2.0 + i * losses,
        )
        for i, step in enumerate(steps)
    ]


PAIR = (
    *repeats("fp32", "off", (0.2, 0.2, 0.2)),
    *repeats("amp", "off", (0.1, 0.1, 0.16), losses=0.1),
)


def test_every_change_of_a_technique_has_its_interval_in_the_file() -> None:
    table = made("precision", *PAIR)
    amp = row(table, precision="amp")
    # Of 27 draws of 3 repeats the ends are the first and the last: one repeat three times.
    assert amp["validation_loss_percent"] == pytest.approx(5.0)
    assert amp["validation_loss_low_percent"] == pytest.approx(0.0, abs=1e-9)  # 2.0 / 2.0
    assert amp["validation_loss_high_percent"] == pytest.approx(10.0)  # 2.2 / 2.0
    assert amp["train_loss_low_percent"] == pytest.approx(-5.0)  # 3.8 / 4.0
    head = render.csv(table).splitlines()[0].split(",")
    for name in ("memory_saved", "time_saved", "speed", "train_loss", "validation_loss"):
        assert {f"{name}_low_percent", f"{name}_high_percent"} <= set(head)
    narrow = render.terminal(table, width=80)
    assert "not shown for lack of width" in narrow
    assert max(map(len, narrow.split("note", 1)[1].split("\n\n")[0].splitlines())) <= 80


def test_the_changes_of_the_main_table_have_intervals_too() -> None:
    table = made("runs", *PAIR)
    amp = row(table, precision="amp")
    assert amp["step_time_vs_baseline_percent"] == pytest.approx(-40.0)  # 0.12 / 0.2
    assert amp["step_time_vs_baseline_low_percent"] == pytest.approx(-50.0)  # 0.1 / 0.2
    assert amp["step_time_vs_baseline_high_percent"] == pytest.approx(-20.0)  # 0.16 / 0.2
    assert amp["throughput_vs_baseline_high_percent"] == pytest.approx(100.0)
    assert math.isnan(row(table, precision="fp32")["step_time_vs_baseline_low_percent"])
    assert "validation_loss_vs_baseline_high_percent" in render.csv(table).splitlines()[0]


def test_single_runs_have_no_intervals_in_any_table() -> None:
    records = [record(p, c) for p in ("fp32", "amp") for c in ("off", "on")]
    for name in ("runs", "precision", "checkpointing", "combined"):
        assert "_low_percent" not in render.csv(made(name, *records))


@pytest.mark.parametrize(
    ("steps", "low", "high", "faster"),
    [
        ((0.1, 0.2, 0.27), 0.2 / 0.27, 2.0, "not clear"),
        ((0.1, 0.1, 0.16), 0.2 / 0.16, 2.0, "yes"),
        ((0.25, 0.4, 0.32), 0.5, 0.8, "no"),
    ],
)
def test_whether_both_are_faster_is_not_clear_where_the_interval_contains_0(
    steps: tuple[float, ...], low: float, high: float, faster: str
) -> None:
    same = (0.2, 0.2, 0.2)
    table = made(
        "combined",
        *repeats("fp32", "off", same),
        *repeats("amp", "off", same),
        *repeats("fp32", "on", same),
        *repeats("amp", "on", steps),
    )
    both = table.frame.iloc[0]
    assert both["speed_both_low_percent"] == pytest.approx(100 * (low - 1))
    assert both["speed_both_high_percent"] == pytest.approx(100 * (high - 1))
    assert both["faster"] == faster
    assert "memory_saved_both_low_percent" in render.csv(table).splitlines()[0]


def full(precision: str, status: str = "oom") -> Record:
    return record(precision, status=status, memory_mib=None, step_s=None, error="2 GiB more")


def test_memory_by_component_shows_what_ran_out_of_it() -> None:
    parts = MemoryParts(parameters_bytes=30 * MIB, activations_bytes=70 * MIB)
    table = made("memory", full("fp32"), record("amp", memory_parts=parts))
    lost = row(table, precision="fp32")
    assert lost["status"] == "oom"
    assert lost["notes"] == "oom: 2 GiB more"
    assert math.isnan(lost["peak_bytes"])
    assert row(table, precision="amp")["activations_bytes"] == 70 * MIB
    text = render.terminal(table, width=120)
    assert "oom: 2 GiB more" in text
    assert "nan" not in text.lower()


def test_step_time_by_part_shows_what_failed_and_its_step_is_not_0() -> None:
    parts = StepParts(forward_s=0.04, backward_s=0.06)
    table = made("step_time", full("fp32", "failed"), record("amp", parts=parts))
    lost = row(table, precision="fp32")
    assert lost["status"] == "failed"
    assert lost["notes"] == "failed: 2 GiB more"
    assert math.isnan(lost["step_time_mean_s"])
    assert row(table, precision="amp")["step_time_mean_s"] == pytest.approx(0.1)
