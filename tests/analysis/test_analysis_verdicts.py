"""When a claim holds: figures of 0, unlike configurations, shared cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis_records import record, write_sweep
from analysis_verdicts import change, outcomes_of, study

from analysis.__main__ import main
from analysis.claims import Claim
from analysis.outcome import within
from analysis.tables.claims import build, table_of
from sweeper.record import Record

# --- figures of 0 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_lies_in_no_range(value: float) -> None:
    ends = ((35.0, 45.0), (None, 45.0), (35.0, None))
    assert not any(within(Claim("a", "", "", "change", low=x, high=y), value) for x, y in ends)


def test_a_baseline_of_zero_leaves_the_claim_untested(tmp_path: Path) -> None:
    text = change("train_loss_percent", "at_most: 5")
    (outcome,) = outcomes_of(tmp_path, text, record("fp32", loss=0.0), record("amp", loss=1.0))
    assert (outcome.verdict, outcome.remark) == ("not tested", "the baseline's figure is 0")


def test_a_baseline_of_zero_is_left_out_beside_others(tmp_path: Path) -> None:
    (outcome,) = outcomes_of(
        tmp_path,
        change("train_loss_percent", "at_most: 5"),
        record("fp32", loss=0.0),
        record("amp", loss=1.0),
        record("fp32", "on", loss=1.0),
        record("amp", "on", loss=1.04),
    )
    assert (outcome.verdict, outcome.configurations) == ("holds", 1)
    assert outcome.value == pytest.approx(4.0)
    assert outcome.remark == "1 left out: the baseline's figure is 0"


def test_the_gate_does_not_pass_on_figures_of_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    base = record("fp32", memory_mib=0.0, step_s=0.1)
    base.time.step_time_s = base.time.samples_per_s = 0.0
    sweep = write_sweep(tmp_path / "s", [base, record("amp")])
    own = tmp_path / "own.yaml"
    own.write_text(
        change("memory_saved_percent", "range: [35, 45]")
        + change("speed_percent", "at_least: 15").replace("id: a", "id: b").replace("- {", "\n- {")
    )
    assert main(["check", str(sweep), "--claims", str(own)]) == 0
    told = capsys.readouterr().out
    assert "0 hold, 0 do not hold, 2 not tested" in told
    assert [str(w.message) for w in recwarn if w.category is RuntimeWarning] == []


# --- every configuration --------------------------------------------------------------------------


def test_a_range_speaks_of_every_configuration_not_of_their_mean(tmp_path: Path) -> None:
    # 60 % and 140 %: the mean is 100 %.
    runs = []
    for ckpt, step in (("off", 1 / 0.6 / 2), ("on", 1 / 1.4 / 2)):
        runs += [record(ckpt=ckpt, step_s=1.0), record(ckpt=ckpt, gpus=2, step_s=step)]
    text = change("efficiency_percent", "range: [95, 105]", "gpus: 1")
    (outcome,) = outcomes_of(tmp_path, text, *runs)
    assert outcome.value == pytest.approx(100.0)
    assert (outcome.verdict, outcome.inside, outcome.configurations) == ("does not hold", 0, 2)
    assert outcome.remark == "0 of 2 configurations lie in the range"


@pytest.mark.parametrize(
    ("scope", "inside", "verdict"),
    [
        ("all", 3, "holds"),
        ("all", 2, "does not hold"),
        ("most", 2, "holds"),
        ("most", 1, "does not hold"),
        ("some", 1, "holds"),
        ("some", 0, "does not hold"),
    ],
)
def test_a_claim_says_of_how_many_configurations_it_speaks(
    tmp_path: Path, scope: str, inside: int, verdict: str
) -> None:
    runs = []
    for number in range(3):
        saved = 40 if number < inside else 10
        runs += [record("fp32", batch=8 * (number + 1), memory_mib=100)]
        runs += [record("amp", batch=8 * (number + 1), memory_mib=100 - saved)]
    text = change("memory_saved_percent", "range: [35, 45]", more=f", configurations: {scope}")
    (outcome,) = outcomes_of(tmp_path, text, *runs)
    assert (outcome.verdict, outcome.inside, outcome.configurations) == (verdict, inside, 3)


def repeats(ckpt: str, *sizes: int) -> list[Record]:
    base = [record("fp32", ckpt, repeat=i, memory_mib=100) for i in range(len(sizes))]
    return base + [record("amp", ckpt, repeat=i, memory_mib=m) for i, m in enumerate(sizes)]


def test_a_configuration_whose_interval_reaches_the_range_refutes_nothing(tmp_path: Path) -> None:
    text = change("memory_saved_percent", "range: [35, 45]")
    # 40 and 38 %; 36 and 32 %: 34 % with an interval of 32 to 36 %. The mean is 36.5 %.
    (outcome,) = outcomes_of(tmp_path, text, *repeats("off", 60, 62), *repeats("on", 64, 68))
    assert outcome.value == pytest.approx(36.5)
    assert (outcome.verdict, outcome.inside) == ("holds", 1)
    assert outcome.remark == (
        "1 of 2 configurations lie in the range; 1 more within their intervals"
    )
    # 34 and 33 %: an interval that ends below 35 %.
    (outcome,) = outcomes_of(tmp_path, text, *repeats("off", 60, 62), *repeats("on", 66, 67))
    assert (outcome.verdict, outcome.inside) == ("does not hold", 1)


def test_a_wide_interval_alone_makes_nothing_hold(tmp_path: Path) -> None:
    # 10 and 50 %: 30 % with an interval of 10 to 50 %.
    text = change("memory_saved_percent", "range: [35, 45]")
    (outcome,) = outcomes_of(tmp_path, text, *repeats("off", 90, 50))
    assert outcome.value == pytest.approx(30.0)
    assert outcome.verdict == "does not hold"


def test_the_table_counts_configurations_and_says_what_else_it_counts() -> None:
    runs = record("fp32", memory_mib=100), record("amp", memory_mib=60)
    table = build(study(*runs))
    assert table is not None
    shown = {c.name: c.header for c in table.columns}
    assert shown["pairs"] == "pairs"
    amp = table.frame[table.frame["id"] == "amp-memory-35-45"].iloc[0]
    assert (amp["configurations"], amp["inside"]) == (1, 1)
    assert any("Machine: A100" in fact for fact in table.facts)


def test_counts_of_runs_are_headed_so(tmp_path: Path) -> None:
    figure = "- {id: b, metric: step_time_s, at_least: 0}"
    one = change("memory_saved_percent", "at_least: 1")
    runs = record("fp32"), record("amp", memory_mib=60)
    for text, header in (
        (one, "pairs"),
        (figure, "runs"),
        (f"{one}\n{figure}", "pairs or runs"),
    ):
        table = table_of(outcomes_of(tmp_path, text, *runs))
        assert {c.name: c.header for c in table.columns}["pairs"] == header


# --- shared cores ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "batch"),
    [
        ("efficiency_percent", 64),
        ("weak_efficiency_percent", 512),
        ("speed_up", 64),
        ("time_saved_percent", 64),
    ],
)
def test_processes_that_share_cores_test_no_claim_about_gpus(
    tmp_path: Path, metric: str, batch: int
) -> None:
    runs = record(device="cpu"), record(gpus=8, batch=batch, device="cpu", step_s=0.3)
    (outcome,) = outcomes_of(tmp_path, change(metric, "at_most: 95", "gpus: 1"), *runs)
    assert (outcome.verdict, outcome.remark) == ("not tested", "more processes than cores")
    assert outcome.machine == "CPU EPYC (2 cores)"


def test_only_the_processes_that_share_cores_are_left_out(tmp_path: Path) -> None:
    text = change("efficiency_percent", "at_least: 70", "gpus: 1")
    (outcome,) = outcomes_of(
        tmp_path,
        text,
        record(device="cpu", step_s=0.1),
        record(gpus=2, device="cpu", step_s=0.0625),  # 80 %
        record(gpus=8, device="cpu", step_s=0.3),
    )
    assert (outcome.verdict, outcome.configurations) == ("holds", 1)
    assert outcome.value == pytest.approx(80.0)
    assert outcome.remark == "1 left out: more processes than cores"


def test_memory_of_processes_that_share_cores_is_real(tmp_path: Path) -> None:
    text = change("memory_saved_percent", "at_least: 50", "gpus: 1")
    runs = record(device="cpu"), record(gpus=8, device="cpu", memory_mib=40)
    assert outcomes_of(tmp_path, text, *runs)[0].verdict == "holds"
