"""Tables T1 and T3 to T6 against calculations by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from analysis_records import MIB, plain, record, row

from analysis import tables
from analysis.load import from_records
from analysis.study import Question, Study
from analysis.table import Table
from sweeper.record import Failure, MemoryParts, Record, Status, StepParts


def build(name: str, *records: Record, **question: Any) -> Table | None:
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])
    return tables.TABLES[name](Study(found, Question(**question)))


def made(name: str, *records: Record, **question: Any) -> Table:
    table = build(name, *records, **question)
    assert table is not None
    return table


PARTS = MemoryParts(
    parameters_bytes=30 * MIB,
    gradients_bytes=30 * MIB,
    optimizer_bytes=60 * MIB,
    activations_bytes=150 * MIB,
    data_bytes=MIB,
    remainder_bytes=9 * MIB,
    allocator_reserve_bytes=40 * MIB,
)


def test_t1_parts_add_up_to_the_peak() -> None:
    table = made("memory", record(memory_mib=280, memory_parts=PARTS))
    only = table.frame.iloc[0]
    inside = ("parameters", "gradients", "optimizer", "activations", "data", "remainder")
    assert sum(only[f"{part}_bytes"] for part in inside) == only["peak_bytes"] == 280 * MIB
    assert only["activations_over_parameters"] == 5.0
    shown = [column.name for column in table.columns]
    assert "allocator_reserve_bytes" in shown
    assert "ema_bytes" not in shown  # nothing was measured
    assert "allocator_reserve lie beside it" in table.facts[0]


def test_t1_is_left_out_where_no_parts_were_measured() -> None:
    assert build("memory", record()) is None


def test_the_parts_of_a_step_add_up_to_it() -> None:
    parts = StepParts(
        data_wait_s=0.01, forward_s=0.03, backward_s=0.05, communication_s=0.02, optimizer_s=0.01
    )
    slow = record("fp32", step_s=0.12)
    slow.time.parts, slow.time.step_time_mean_s, slow.time.steady = parts, 0.12, False
    slow.time.mfu, slow.time.hfu = 0.25, 0.3125
    table = made("step_time", slow, record("amp", step_s=0.1))
    (only,) = table.frame.to_dict("records")  # the other run has no parts
    inside = ("data_wait", "forward", "backward", "communication", "optimizer")
    assert sum(only[f"{part}_s"] for part in inside) == pytest.approx(only["step_time_mean_s"])
    assert only["step_time_mean_s"] == pytest.approx(0.12)
    assert (only["mfu_percent"], only["hfu_percent"]) == (25.0, 31.25)
    assert "rest_s" not in [column.name for column in table.columns]
    assert len(table.notes) == 1  # that it was not steady
    assert build("step_time", record()) is None


def test_t3_effect_of_precision_for_each_setting() -> None:
    table = made(
        "precision",
        record("fp32", "off", memory_mib=400, step_s=0.2, validation=2.0),
        record("amp", "off", memory_mib=250, step_s=0.16, validation=2.02),
        record("fp32", "on", memory_mib=200, step_s=0.25, validation=2.0),
        record("amp", "on", memory_mib=160, step_s=0.25, validation=2.0),
    )
    off, on = row(table, ckpt="off"), row(table, ckpt="on")
    assert off["memory_saved_percent"] == pytest.approx(37.5)
    assert off["time_saved_percent"] == pytest.approx(20.0)
    assert off["speed_percent"] == pytest.approx(25.0)
    assert off["validation_loss_percent"] == pytest.approx(1.0)
    assert off["base_peak_bytes"] == 400 * MIB
    assert on["memory_saved_percent"] == pytest.approx(20.0)
    assert on["speed_percent"] == pytest.approx(0.0)
    assert any("n=1" in fact for fact in table.facts)


def test_t3_lists_what_has_no_partner_and_why() -> None:
    table = made(
        "precision",
        record("fp32", batch=32),
        record("amp", batch=32),
        record("amp", batch=64),
    )
    assert table.frame["axis.batch.size"].tolist() == [32]
    assert "not paired (1): no run with precision=fp32" in table.notes[0]
    assert "batch.size=64" in table.notes[0]


def test_t3_is_left_out_where_precision_does_not_vary() -> None:
    assert build("precision", record("amp", "on"), record("amp", "off")) is None


def test_t3_intervals_come_from_repeats() -> None:
    table = made(
        "precision",
        *(record("fp32", repeat=i, step_s=s) for i, s in enumerate((0.2, 0.2, 0.2))),
        *(record("amp", repeat=i, step_s=s) for i, s in enumerate((0.1, 0.1, 0.16))),
    )
    amp = row(table, precision="amp")
    assert amp["pairs"] == 3
    assert amp["time_saved_percent"] == pytest.approx(40.0)
    assert amp["time_saved_low_percent"] == pytest.approx(20.0)
    assert amp["time_saved_high_percent"] == pytest.approx(50.0)
    assert any("bootstrap over repeats (n up to 3)" in fact for fact in table.facts)


def test_t4_checkpointing_and_what_only_fits_with_it() -> None:
    table = made(
        "checkpointing",
        record("fp32", "off", status="oom", error="2 GiB", memory_mib=None, step_s=None),
        record("fp32", "on", memory_mib=200),
        record("amp", "off", memory_mib=250, step_s=0.1),
        record("amp", "on", memory_mib=100, step_s=0.125),
    )
    amp = row(table, precision="amp")
    assert amp["memory_saved_percent"] == pytest.approx(60.0)
    assert amp["speed_percent"] == pytest.approx(-20.0)
    assert "it fits only so" in row(table, precision="fp32")["notes"]
    assert "ran out of memory" in row(table, precision="fp32")["notes"]


def test_t5_shows_each_change_alone_on_top_and_both() -> None:
    table = made(
        "combined",
        record("fp32", "off", memory_mib=400, step_s=0.20),
        record("amp", "off", memory_mib=240, step_s=0.16),
        record("fp32", "on", memory_mib=200, step_s=0.25),
        record("amp", "on", memory_mib=100, step_s=0.22),
    )
    both = table.frame.iloc[0]
    assert len(table.frame) == 1
    assert both["memory_saved_precision_percent"] == pytest.approx(40.0)  # 240 / 400
    assert both["memory_saved_precision_with_ckpt_percent"] == pytest.approx(50.0)  # 100 / 200
    assert both["memory_saved_ckpt_percent"] == pytest.approx(50.0)  # 200 / 400
    assert both["memory_saved_ckpt_with_precision_percent"] == pytest.approx(100 * (1 - 100 / 240))
    assert both["memory_saved_both_percent"] == pytest.approx(75.0)  # 100 / 400
    assert both["memory_saved_product_percent"] == pytest.approx(70.0)  # 1 - 0.6 * 0.5
    assert both["speed_precision_percent"] == pytest.approx(25.0)
    assert both["speed_ckpt_percent"] == pytest.approx(-20.0)
    assert both["speed_product_percent"] == pytest.approx(0.0)  # 1.25 * 0.8 - 1
    assert both["speed_both_percent"] == pytest.approx(100 * (0.20 / 0.22 - 1))
    assert both["faster"] == "no"


def test_t6_strong_scaling_slower_than_one_gpu() -> None:
    table = made("scaling", record(gpus=1, step_s=49.0), record(gpus=4, step_s=82.0))
    four = row(table, gpus=4)
    assert four["scaling"] == "strong"
    assert four["speed_up"] == pytest.approx(0.598, abs=5e-4)
    assert four["efficiency_percent"] == pytest.approx(14.9, abs=0.05)


def test_t6_strong_scaling_on_two_gpus() -> None:
    two = row(made("scaling", record(gpus=1, step_s=27.0), record(gpus=2, step_s=18.0)), gpus=2)
    assert two["speed_up"] == pytest.approx(1.50)
    assert two["efficiency_percent"] == pytest.approx(75.0)
    assert two["serial_share_percent"] == pytest.approx(100 / 3)  # (2/3 - 1/2) / (1 - 1/2)


def test_t6_without_the_run_on_one_gpu_nothing_is_relative_to_another() -> None:
    table = made("scaling", record(gpus=2, step_s=0.2), record(gpus=4, step_s=0.1))
    assert table.frame["efficiency_percent"].isna().all()
    assert table.frame["shown"].tolist() == ["n/a", "n/a"]
    assert "no run with gpus=1" in table.frame["notes"].iloc[0]


def test_t6_weak_scaling_by_the_batch_per_gpu() -> None:
    table = made(
        "scaling",
        record(gpus=1, batch=8, step_s=0.10),
        record(gpus=4, batch=32, step_s=0.125),
        record(gpus=4, batch=8, step_s=0.04),
    )
    weak, strong = (row(table, scaling=kind, gpus=4) for kind in ("weak", "strong"))
    assert weak["global_batch"] == 32
    assert weak["speed_up"] == pytest.approx(3.2)  # (32 / 0.125) / (8 / 0.1)
    assert weak["efficiency_percent"] == pytest.approx(80.0)
    assert strong["global_batch"] == 8
    assert strong["speed_up"] == pytest.approx(2.5)


def test_t6_names_the_part_of_the_step_that_costs_most() -> None:
    one = StepParts(
        data_wait_s=0.01,
        forward_s=0.30,
        backward_s=0.60,
        communication_s=0.0,
        optimizer_s=0.08,
        rest_s=0.01,
    )
    # Ideal on 2: half of each. Lost: communication 0.15, optimizer 0.04, compute 0.01.
    two = StepParts(
        data_wait_s=0.005,
        forward_s=0.155,
        backward_s=0.305,
        communication_s=0.15,
        optimizer_s=0.08,
        rest_s=0.005,
    )
    table = made(
        "scaling",
        record(gpus=1, step_s=1.0, parts=one),
        record(gpus=2, step_s=0.7, parts=two),
    )
    assert row(table, gpus=2)["cause"] == "communication: 75 % of the loss"
    assert row(table, gpus=1)["cause"] is None


def test_t6_fits_amdahls_law_with_its_range() -> None:
    # t(N) = 0.2 + 0.8 / N exactly.
    runs = [record(gpus=n, step_s=0.2 + 0.8 / n) for n in (1, 2, 4)]
    table = made("scaling", *runs)
    assert (
        "20.0 % of the step does not speed up (20.0 to 20.0 % by single points)" in table.notes[-1]
    )
    assert "this fit's limit is a speed-up of 5.0" in table.notes[-1]
    assert "fitted over 1 to 4 GPUs, not tested beyond" in table.notes[-1]


def test_t6_amdahls_law_is_not_fitted_to_gpus_that_are_slower_than_one() -> None:
    # Speed-ups of 1.25 and 0.8: shares of 0.6 and of (1.25 - 0.125) / 0.875 = 1.29.
    table = made("scaling", *(record(gpus=n, step_s=t) for n, t in ((1, 1.0), (2, 0.8), (8, 1.25))))
    assert table.notes[-1].endswith(
        "Amdahl's law does not describe this curve: 8 GPUs are slower than 1"
    )
    assert row(table, gpus=2)["serial_share_percent"] == pytest.approx(60.0)
    assert pd.isna(row(table, gpus=8)["serial_share_percent"])


def test_t6_a_fit_without_a_serial_share_has_no_limit() -> None:
    table = made("scaling", *(record(gpus=n, step_s=1 / n) for n in (1, 2, 4)))
    assert "0.0 % of the step does not speed up" in table.notes[-1]
    assert "limit" not in table.notes[-1]


def test_t6_processes_that_share_cores_have_no_cause_and_no_law_of_gpus() -> None:
    steps = StepParts(forward_s=0.03, backward_s=0.06, communication_s=0.0)
    slow = StepParts(forward_s=0.03, backward_s=0.06, communication_s=0.2)
    runs = [record(device="cpu", parts=steps)]
    runs += [record(gpus=n, device="cpu", step_s=0.3, parts=slow) for n in (2, 4, 8)]
    table = made("scaling", *runs)
    assert row(table, gpus=2)["cause"] == "communication: 82 % of the loss"  # 0.2 of 0.245
    assert row(table, gpus=4)["cause"] == "processes share cores"
    assert row(table, gpus=8)["cause"] == "processes share cores"
    assert not [note for note in table.notes if "Amdahl" in note or "does not speed up" in note]


def test_t6_more_than_linear_speed_up_has_no_serial_share() -> None:
    table = made("scaling", *(record(gpus=n, step_s=1 / n**2) for n in (1, 2, 4)))
    assert row(table, gpus=2)["efficiency_percent"] == pytest.approx(200.0)
    assert table.frame["serial_share_percent"].isna().all()
    assert not [note for note in table.notes if "does not speed up" in note]


def test_t6_memory_per_gpu() -> None:
    table = made(
        "scaling", record(gpus=1, memory_mib=200), record(gpus=2, memory_mib=150, step_s=0.06)
    )
    assert row(table, gpus=2)["memory_change_percent"] == pytest.approx(-25.0)


@pytest.mark.parametrize("name", list(tables.TABLES))
def test_every_table_renders_in_every_format_even_where_everything_failed(name: str) -> None:
    from analysis.render import FORMATS

    records = [
        record(
            p,
            c,
            gpus=g,
            status="failed",
            error="boom | <b>",
            memory_mib=None,
            step_s=None,
            loss=None,
            validation=None,
        )
        for p in ("fp32", "amp")
        for c in ("off", "on")
        for g in (1, 2)
    ]
    table = build(name, *records)
    if table is None:
        assert name in ("memory", "step_time", "left_out")
        return
    for _, render in FORMATS.values():
        assert "nan" not in render(table).lower().replace("maintenance", "")


def test_runs_that_did_not_complete_are_listed_with_cause_and_log() -> None:
    fine, full, lost = record("fp32"), record("amp"), record("bf16")
    full.status, full.phase = Status.OOM, "warmup"
    full.error = Failure(type="OutOfMemoryError", message="no room\nat all", log="attempt0/a.err")
    lost.status = Status.KILLED
    lost.error = Failure(type="SIGKILL", message="killed")
    found = from_records([(f"/s/run{i}", plain(one)) for i, one in enumerate((fine, full, lost))])
    table = tables.TABLES["failures"](Study(found))
    assert table is not None
    assert table.frame["status"].tolist() == ["oom", "killed"]
    assert table.frame["reason"].tolist() == ["no room", "killed"]
    assert table.frame["log"].tolist() == ["/s/run1/attempt0/a.err", None]
    assert table.frame["log_shown"].tolist() == ["attempt0/a.err", None]
    assert "Logs are below /s/run1." in table.facts
    assert build("failures", record()) is None
