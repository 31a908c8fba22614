"""What is compared with what: batches, repeats that failed, imported rows, stated baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from analysis_records import plain, record, row

from analysis import compare, tables
from analysis.__main__ import main
from analysis.baseline import find, match
from analysis.claims import read_claims
from analysis.load import from_records
from analysis.sources import read
from analysis.study import Question, Study
from analysis.table import Table
from analysis.testing import test as run_claims
from sweeper.errors import UserError
from sweeper.record import Record

HEAD = "source,model,micro_batch,gpus,gpu,precision,memory,memory_kind,step_time_s\n"


def study(*records: Record, **question: Any) -> Study:
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])
    return Study(found, Question(**question))


def imported(tmp_path: Path, *rows: str) -> Study:
    path = tmp_path / "import.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return Study(read([str(path)]))


def table(name: str, of: Study) -> Table:
    built = tables.TABLES[name](of)
    assert built is not None
    return built


def weak(gpus: int, step_s: float = 0.1) -> Record:
    """16 samples per GPU: batch.per_gpu is the same in all runs, and so is batch.size."""
    one = record(gpus=gpus, step_s=step_s, batch__per_gpu=16)
    one.numerics.global_batch, one.numerics.micro_batch = 16 * gpus, 16
    one.time.samples_per_s = 16 * gpus / step_s
    return one


def test_another_global_batch_is_not_compared_although_no_axis_tells_it_apart() -> None:
    four = row(table("runs", study(weak(1), weak(4))), gpus=4)
    assert math.isnan(four["throughput_vs_baseline_percent"])
    assert four["throughput_shown"] == "n/a"
    assert four["notes"] == "n/a: the baseline has another global batch (16)"


def test_global_batches_are_mixed_where_somebody_asks_for_it() -> None:
    asked = table("runs", study(weak(1), weak(4), mix=frozenset({"batch"})))
    # 64 samples in the time of 16.
    assert row(asked, gpus=4)["throughput_vs_baseline_percent"] == pytest.approx(300.0)
    sizes = study(
        record(batch=32, step_s=0.1), record(batch=64, step_s=0.1), baseline={"batch.size": "32"}
    )
    doubled = row(table("runs", sizes), **{"batch.size": 64})
    assert doubled["throughput_vs_baseline_percent"] == pytest.approx(100.0)


def test_naming_a_batch_key_that_does_not_vary_mixes_nothing() -> None:
    named = study(weak(1), weak(4), baseline={"batch.per_gpu": "16"})
    assert row(table("runs", named), gpus=4)["throughput_shown"] == "n/a"


def test_the_global_batch_of_weak_scaling_is_compared_by_its_own_table() -> None:
    frame = table("scaling", study(weak(1, 0.1), weak(4, 0.125))).frame
    four = frame[(frame["gpus"] == 4) & (frame["scaling"] == "weak")].iloc[0]
    assert four["efficiency_percent"] == pytest.approx(80.0)


def test_a_claim_about_equal_batches_is_not_judged_on_others() -> None:
    claims = [c for c in read_claims() if c.id == "gpus-same-update"]
    (outcome,) = run_claims(study(weak(1), weak(4)), claims)
    assert outcome.verdict == "not tested"
    assert "another global batch (16)" in outcome.remark


def test_figures_and_change_of_a_row_rest_on_the_same_repeats() -> None:
    made = study(
        *(record("fp32", repeat=i, step_s=s) for i, s in enumerate((0.1, 0.2, 0.6))),
        record("amp", repeat=0, step_s=0.1),
        record("amp", repeat=1, status="failed", step_s=None, memory_mib=None, error="boom"),
        record("amp", repeat=2, step_s=0.2),
    )
    amp = row(table("precision", made), precision="amp")
    # Repeats 0 and 2: (0.1 + 0.6) / 2 and (0.1 + 0.2) / 2.
    assert amp["base_step_time_s"] == pytest.approx(0.35)
    assert amp["step_time_s"] == pytest.approx(0.15)
    assert amp["time_saved_percent"] == pytest.approx(100 * (1 - 0.15 / 0.35))
    assert amp["speed_percent"] == pytest.approx(100 * (0.35 / 0.15 - 1))
    assert "changes are over 2 of 3 repeats" in amp["notes"]
    runs = table("runs", made)
    assert row(runs, precision="fp32")["step_time_s"] == pytest.approx(0.3)  # all three
    assert "changes are over 2 of 3 repeats" in row(runs, precision="amp")["notes"]
    assert row(runs, precision="fp32")["notes"] == ""


def test_a_baseline_that_lost_a_repeat_is_remarked_too() -> None:
    made = study(
        record("fp32", repeat=0, step_s=0.1),
        record("fp32", repeat=1, status="failed", step_s=None, error="boom"),
        *(record("amp", repeat=i, step_s=0.05) for i in (0, 1)),
    )
    assert "1 of 2 repeats" in row(table("runs", made), precision="amp")["notes"]


def test_repeats_that_never_completed_together_are_no_comparison_and_say_so() -> None:
    made = study(
        record("fp32", repeat=0),
        record("fp32", repeat=1, status="failed", step_s=None, error="boom"),
        record("amp", repeat=0, status="failed", step_s=None, error="boom"),
        record("amp", repeat=1),
    )
    amp = row(table("runs", made), precision="amp")
    assert amp["step_time_shown"] == "n/a"
    assert "no repeat, of one seed and number, completed both" in amp["notes"]


FP32 = ("a,m,8,1,A100,fp32,,,8", "a,m,8,1,A100,fp32,,,4")
AMP = ("a,m,8,1,A100,amp,,,1", "a,m,8,1,A100,amp,,,2", "a,m,8,1,A100,amp,,,3")


@pytest.mark.parametrize("rows", [(*FP32, *AMP), (*reversed(AMP), *reversed(FP32))])
def test_imported_rows_are_compared_by_their_means_in_any_order(
    tmp_path: Path, rows: tuple[str, ...]
) -> None:
    made = imported(tmp_path, *rows)
    found = table("precision", made)
    amp = row(found, precision="amp")
    assert (amp["base_step_time_s"], amp["step_time_s"]) == (6.0, 2.0)
    assert amp["speed_percent"] == pytest.approx(200.0)  # 6 / 2 - 1
    assert amp["time_saved_percent"] == pytest.approx(100 * 2 / 3)
    assert math.isnan(amp["speed_low_percent"])
    assert math.isnan(amp["pairs"])
    assert any("Imported rows make no pairs" in fact for fact in found.facts)


def test_imported_means_are_of_one_kind_of_memory(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        "a,m,8,1,A100,fp32,40 GB,reserved,1",
        "a,m,8,1,A100,fp32,10 GB,allocated,1",
        "a,m,8,1,A100,amp,5 GB,allocated,1",
    )
    amp = row(table("precision", made), precision="amp")
    assert amp["memory_saved_percent"] == pytest.approx(50.0)
    assert (amp["base_peak_bytes"], amp["peak_bytes"]) == (10e9, 5e9)


def test_a_claim_about_imported_rows_has_no_interval(tmp_path: Path) -> None:
    made = imported(
        tmp_path, "a,m,8,1,A100,amp,OOM,,", *FP32, *AMP, *(r.replace(",8,", ",4,") for r in FP32)
    )
    claims = [c for c in read_claims() if c.metric == "speed_percent" and not c.where]
    told = [o for o in run_claims(made, claims) if o.verdict != "not tested"]
    assert told
    for outcome in told:
        assert outcome.value == pytest.approx(200.0)
        assert math.isnan(outcome.low)


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        ({"gpus.count": "4"}, {"gpus": "4"}),
        ({"accum.steps": "2"}, {"accum": "2"}),
        ({"precision.name": "amp"}, {"precision": "amp"}),
        ({"ckpt.enabled": "true"}, {"ckpt": "on"}),
    ],
)
def test_another_name_of_an_axis_states_the_same_baseline(
    stated: dict[str, str], meant: dict[str, str]
) -> None:
    records = [
        record(p, c, accum=a, gpus=g, step_s=0.1 * a / g)
        for p in ("fp32", "amp")
        for c in ("off", "on")
        for a in (1, 2)
        for g in (1, 4)
    ]
    made = study(*records, baseline=stated)
    assert made.question.baseline == meant
    assert find(made).values == find(study(*records, baseline=meant)).values
    assert (find(made).base >= 0).all()


def test_a_stated_baseline_reaches_the_tables_of_single_techniques() -> None:
    records = [record("fp32", step_s=0.1), record("amp", step_s=0.05)]
    found = table("precision", study(*records, baseline={"precision.name": "amp"}))
    assert row(found, precision="fp32")["speed_percent"] == pytest.approx(-50.0)


def test_a_key_below_a_group_takes_the_place_of_its_default() -> None:
    made = study(
        record(ckpt="off", step_s=0.1),
        record(ckpt="on", ckpt__blocks=2, step_s=0.2),
        record(ckpt="on", ckpt__blocks=4, step_s=0.4),
        baseline={"ckpt.blocks": "2"},
    )
    speed = compare.percent(made, find(made), "speed")
    rows = made.configurations["axis.ckpt.blocks"].tolist()
    assert speed[rows.index(4)] == pytest.approx(-50.0)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"precision": "nonsense"}, "precision=nonsense: no run has this value.*use one of fp32, "),
        ({"gpus.count": "3"}, "gpus.count=3: no run has this value.*use one of 1, 4"),
        ({"gpus": "4", "gpus.count": "1"}, "gpus.count=1: is also given as 4"),
    ],
)
def test_a_baseline_that_no_run_can_be_is_refused(stated: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=f"(?s){message}"):
        study(record(gpus=1), record("amp", gpus=4), baseline=stated)


@pytest.mark.parametrize("command", ["report", "check", "advice"])
def test_every_command_refuses_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "import.csv"
    path.write_text(HEAD + "\n".join((*FP32, *AMP)))
    assert main([command, str(path), "--baseline", "precision=nonsense"]) == 2
    assert "use one of fp32, amp" in capsys.readouterr().err
    assert main([command, str(path), "--baseline", "gpus=1", "gpus=2"]) == 2
    assert "is also given as 1" in capsys.readouterr().err


def test_a_match_by_hand_keeps_batches_apart_too() -> None:
    found = match(study(weak(1), weak(4)), {"gpus": "1"})
    assert found.base.tolist() == [0, -1]


def test_a_speed_up_over_fewer_repeats_than_were_run_says_so() -> None:
    made = study(
        *(record(gpus=1, repeat=i, step_s=s) for i, s in enumerate((0.1, 0.2, 0.6))),
        record(gpus=2, repeat=0, step_s=0.1),
        record(gpus=2, repeat=1, status="failed", step_s=None, memory_mib=None, error="boom"),
        record(gpus=2, repeat=2, step_s=0.2),
    )
    frame = table("scaling", made).frame
    notes = dict(zip(frame["gpus"], frame["notes"], strict=True))
    assert "changes are over 2 of 3 repeats" in notes[2]
    assert "changes are over" not in notes[1]
