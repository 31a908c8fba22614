"""The main table's figures, against calculations by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from analysis_records import plain, record, row

from analysis import render
from analysis.load import Loaded, from_records
from analysis.study import Question, Study
from analysis.table import Table
from analysis.tables import runs
from sweeper.errors import UserError
from sweeper.record import Record


def loaded(*records: Record) -> Loaded:
    return from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])


def table(*records: Record, **question: Any) -> Table:
    built = runs.build(Study(loaded(*records), Question(**question)))
    assert built is not None
    return built


def test_changes_against_the_default_baseline() -> None:
    found = table(
        record("fp32", memory_mib=400, step_s=0.2, loss=2.0, validation=4.0),
        record("amp", memory_mib=250, step_s=0.16, loss=2.02, validation=3.0),
        record("amp", "on", memory_mib=100, step_s=0.25, loss=1.0, validation=4.0),
    )
    amp = row(found, precision="amp", ckpt="off")
    assert amp["memory_vs_baseline_percent"] == pytest.approx(-37.5)  # 250 / 400 - 1
    assert amp["step_time_vs_baseline_percent"] == pytest.approx(-20.0)  # 0.16 / 0.2 - 1
    assert amp["throughput_vs_baseline_percent"] == pytest.approx(25.0)  # 0.2 / 0.16 - 1
    assert amp["train_loss_vs_baseline_percent"] == pytest.approx(1.0)  # 2.02 / 2 - 1
    assert amp["validation_loss_vs_baseline_percent"] == pytest.approx(-25.0)  # 3 / 4 - 1
    both = row(found, precision="amp", ckpt="on")
    assert both["memory_vs_baseline_percent"] == pytest.approx(-75.0)
    assert both["step_time_vs_baseline_percent"] == pytest.approx(25.0)
    base = row(found, precision="fp32")
    assert base["memory_shown"] == "base"
    assert found.facts[0].startswith("Baseline: precision=fp32 ckpt=off accum=1 gpus=1")


@pytest.mark.parametrize(
    ("old", "new", "speed", "saved"),
    [
        (9.42e-3, 5.27e-3, 78.7, 44.1),
        (12.76e-3, 1.75e-3, 629.1, 86.3),
        (1 / 0.51, 1 / 0.81, 58.8, 37.0),
    ],
)
@pytest.mark.parametrize("given", ["times", "rates"])
def test_speed_is_the_same_from_times_and_from_rates(
    old: float, new: float, speed: float, saved: float, given: str
) -> None:
    pair = [plain(record("fp32", step_s=old)), plain(record("amp", step_s=new))]
    for one in pair:
        one["time"]["samples_per_s" if given == "times" else "step_time_s"] = None
    study = Study(from_records([("a", pair[0]), ("b", pair[1])]))
    built = runs.build(study)
    assert built is not None
    amp = row(built, precision="amp")
    assert round(amp["throughput_vs_baseline_percent"], 1) == speed
    assert round(-amp["step_time_vs_baseline_percent"], 1) == saved


def test_a_missing_baseline_is_na_with_its_reason_and_no_other_takes_its_place() -> None:
    found = table(record("tf32", memory_mib=300), record("amp", memory_mib=200))
    for name in ("tf32", "amp"):
        assert math.isnan(row(found, precision=name)["memory_vs_baseline_percent"])
        assert row(found, precision=name)["memory_shown"] == "n/a"
        assert "no run with precision=fp32" in row(found, precision=name)["notes"]
    assert "n/a, no run with precision=fp32" in found.facts[0]


def test_a_baseline_that_did_not_complete_gives_no_figures() -> None:
    found = table(
        record("fp32", status="oom", error="tried 2 GiB", memory_mib=None, step_s=None),
        record("amp"),
    )
    amp = row(found, precision="amp")
    assert math.isnan(amp["memory_vs_baseline_percent"])
    assert "its baseline did not complete (oom: tried 2 GiB)" in amp["notes"]


def test_a_stated_baseline_is_used_and_completed_by_the_default() -> None:
    found = table(
        record("fp32", memory_mib=400),
        record("amp", memory_mib=200),
        record("amp", "on", memory_mib=100),
        baseline={"precision": "amp"},
    )
    assert row(found, precision="fp32")["memory_vs_baseline_percent"] == pytest.approx(100.0)
    assert row(found, precision="amp", ckpt="on")["memory_vs_baseline_percent"] == pytest.approx(
        -50
    )


def test_an_axis_that_never_varies_is_said_to_be_so_throughout() -> None:
    found = table(record("amp", "off"), record("amp", "on", memory_mib=50.0))
    assert row(found, ckpt="on")["memory_vs_baseline_percent"] == pytest.approx(-50.0)
    assert "(precision=amp throughout)" in found.facts[0]


def test_where_the_baseline_cannot_be_told_apart_there_is_none() -> None:
    found = table(record(batch=32), record(batch=64))
    assert found.frame["memory_shown"].tolist() == ["n/a", "n/a"]
    assert "--baseline batch.size=..." in found.facts[0]


def test_each_model_and_batch_has_its_own_baseline() -> None:
    found = table(
        record("fp32", batch=32, memory_mib=100),
        record("amp", batch=32, memory_mib=90),
        record("fp32", batch=64, memory_mib=200),
        record("amp", batch=64, memory_mib=100),
    )
    small, large = (row(found, precision="amp", **{"batch.size": b}) for b in (32, 64))
    assert small["memory_vs_baseline_percent"] == pytest.approx(-10.0)
    assert large["memory_vs_baseline_percent"] == pytest.approx(-50.0)


def test_other_gpus_are_not_compared_unless_asked() -> None:
    records = (
        record("fp32", device_name="A100", step_s=0.4),
        record("amp", device_name="H100", step_s=0.1),
        record("amp", device_name="A100", step_s=0.2),
    )
    found = table(*records)
    frame = found.frame.set_index(["axis.precision", "machine"])
    speed = "throughput_vs_baseline_percent"
    assert frame.loc[("amp", "A100"), speed] == pytest.approx(100.0)
    assert math.isnan(frame.loc[("amp", "H100"), speed])
    assert frame.loc[("amp", "H100"), "throughput_shown"] == "n/a"
    assert "another machine (A100)" in frame.loc[("amp", "H100"), "notes"]
    asked = table(*records, mix=frozenset({"machine"})).frame.set_index(
        ["axis.precision", "machine"]
    )
    assert asked.loc[("amp", "H100"), speed] == pytest.approx(300.0)


def test_other_software_is_not_compared() -> None:
    found = table(record("fp32", torch="2.12"), record("amp", torch="2.13"))
    assert "another software" in row(found, precision="amp")["notes"]


def test_another_commit_is_remarked_but_compared() -> None:
    runs = [record("fp32", memory_mib=100), record("amp", memory_mib=50)]
    runs[0].software.git_commit, runs[1].software.git_commit = "a" * 40, "b" * 40
    found = table(*runs)
    assert row(found, precision="amp")["memory_vs_baseline_percent"] == pytest.approx(-50.0)
    assert row(found, precision="amp")["notes"] == "ran at commit bbbbbbb, its baseline at aaaaaaa"


def test_only_what_differs_of_the_software_is_shown() -> None:
    found = table(record("fp32", torch="2.12"), record("amp", torch="2.13"))
    assert found.frame["software_shown"].tolist() == ["torch 2.12", "torch 2.13"]


def test_repeats_give_mean_and_sample_deviation() -> None:
    found = table(*(record(repeat=i, step_s=s) for i, s in enumerate((0.100, 0.110, 0.120))))
    only = found.frame.iloc[0]
    assert only["step_time_s"] == pytest.approx(0.110)
    assert only["step_time_deviation_s"] == pytest.approx(0.010)  # the population's is 0.00816
    assert only["repeats"] == "3"
    text = render.terminal(found, width=140)
    assert "110 ± 10" in " ".join(text.split())


def test_one_survivor_of_twelve_has_no_spread() -> None:
    failed = [
        record(
            repeat=i, status="failed", error="boom", step_s=None, memory_mib=None, device_name=None
        )
        for i in range(1, 12)
    ]
    found = table(record(repeat=0, step_s=0.1), *failed)
    only = found.frame.iloc[0]
    assert len(found.frame) == 1
    assert only["repeats"] == "1/12"
    assert math.isnan(only["step_time_deviation_s"])
    assert only["notes"] == "1 of 12 repeats completed; failed: boom"
    text = render.terminal(found, width=140)
    assert "nan" not in text.lower()
    assert "±" not in text.split("note", 1)[1]


def test_runs_that_differ_in_seed_alone_are_repeats_unless_asked_for() -> None:
    records = [
        record(p, seed=s, step_s=t)
        for p, s, t in (("fp32", 0, 0.2), ("fp32", 1, 0.4), ("amp", 0, 0.1), ("amp", 1, 0.1))
    ]
    folded = table(*records)
    assert len(folded.frame) == 2
    assert row(folded, precision="fp32")["step_time_s"] == pytest.approx(0.3)
    apart = table(*records, by=("seed",))
    assert len(apart.frame) == 4
    assert row(apart, precision="amp", seed=1)["step_time_vs_baseline_percent"] == pytest.approx(
        -75
    )
    assert len(table(record(seed=1), record(seed=2)).frame) == 2


def test_a_comparison_uses_the_repeats_that_both_have() -> None:
    found = table(
        record("fp32", repeat=0, step_s=0.1),
        record("fp32", repeat=1, step_s=0.3),
        record("amp", repeat=0, status="failed", step_s=None),
        record("amp", repeat=1, step_s=0.15),
    )
    amp = row(found, precision="amp")
    assert amp["step_time_vs_baseline_percent"] == pytest.approx(-50.0)  # 0.15 / 0.3 - 1


def test_failed_rows_are_what_they_are() -> None:
    found = table(
        record("fp32"),
        record(
            "amp",
            gpus=8,
            status="skipped",
            error="needs 8, has 2",
            memory_mib=None,
            step_s=None,
            loss=None,
            validation=None,
        ),
    )
    skipped = row(found, precision="amp")
    assert skipped["status"] == "skipped"
    assert skipped["notes"] == "skipped: needs 8, has 2"
    text = render.terminal(found, width=140)
    assert "skipped: needs 8, has 2" in text
    assert "nan" not in text.lower()


def test_doubts_are_marked() -> None:
    data = [plain(record("fp32")), plain(record("amp"))]
    data[1]["time"] |= {"steady": False, "host_bound": True}
    data[1]["hardware"]["shares_node_with"] = ["abc"]
    built = runs.build(Study(from_records([("a", data[0]), ("b", data[1])])))
    assert built is not None
    assert row(built, precision="fp32")["notes"] == ""
    assert row(built, precision="amp")["marks"] == "1,2,3"
    assert "not steady" in built.notes[0]
    assert "host-bound" in built.notes[1]
    assert "shared its node" in built.notes[2]


def test_different_kinds_of_memory_are_not_compared() -> None:
    other = plain(record("amp"))
    other["memory"]["warm"] = {"peak_tensor_bytes": 5}
    built = runs.build(Study(from_records([("a", plain(record("fp32"))), ("b", other)])))
    assert built is not None
    assert math.isnan(row(built, precision="amp")["memory_vs_baseline_percent"])
    assert row(built, precision="amp")["peak_kind"] == "live tensors"
    assert "memory not compared" in row(built, precision="amp")["notes"]


def test_on_a_cpu_the_header_says_what_gpus_means() -> None:
    found = table(record(device="cpu", gpus=1), record(device="cpu", gpus=2))
    assert any("gpus = processes on a CPU" in fact for fact in found.facts)
    assert any("live tensors" in fact for fact in found.facts)


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean precision\?"):
        table(record(), baseline={"precison": "fp32"})
    with pytest.raises(UserError, match=r"did you mean batch\.size\?"):
        table(record(), by=("batch.sise",))


def test_a_study_without_runs_has_no_main_table() -> None:
    assert runs.build(Study(from_records([("x", {"schema_version": 99})]))) is None
