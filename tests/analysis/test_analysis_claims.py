"""Claims: the documents' and one's own, against calculations by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from analysis_records import MIB, plain, record, write_sweep

from analysis.__main__ import main
from analysis.claims import DEFAULT_FILE, Claim, read_claims
from analysis.load import from_records
from analysis.outcome import Outcome
from analysis.study import Study
from analysis.testing import test as run_claims
from sweeper.errors import UserError
from sweeper.record import MemoryParts, Record


def claims(tmp_path: Path, text: str) -> list[Claim]:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    return read_claims(path)


def outcomes(found: list[Claim], *records: Record) -> list[Outcome]:
    loaded = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])
    return run_claims(Study(loaded), found)


AMP = """
- id: amp
  metric: memory_saved_percent
  baseline: {precision: fp32}
  variant: {precision: [amp, amp_fp16]}
  range: [35, 45]
"""


def test_the_documents_claims_are_all_there_and_name_their_source() -> None:
    found = read_claims()
    assert len(found) >= 25
    assert all(claim.source.startswith(("R1", "R2", "R3")) for claim in found)
    assert {"R1.2", "R1.3", "R1.4", "R2.3", "R2.6", "R3.1", "R3.2", "R3.3", "R3.4"} <= {
        claim.source for claim in found
    }


@pytest.mark.parametrize(
    ("saved", "verdict"), [(40, "holds"), (35, "holds"), (34, "does not hold")]
)
def test_the_value_decides_between_the_ends_included(
    tmp_path: Path, saved: int, verdict: str
) -> None:
    runs = record("fp32", memory_mib=100), record("amp", memory_mib=100 - saved)
    (outcome,) = outcomes(claims(tmp_path, AMP), *runs)
    assert outcome.verdict == verdict
    assert outcome.value == pytest.approx(saved)
    assert (outcome.pairs, outcome.configurations, outcome.machine) == (1, 1, "A100")


def test_the_value_is_the_mean_over_configurations_and_the_interval_over_repeats(
    tmp_path: Path,
) -> None:
    runs = []
    for ckpt, sizes in (("off", (60, 50)), ("on", (80, 70))):
        runs += [record("fp32", ckpt, repeat=i, memory_mib=100) for i in range(2)]
        runs += [record("amp", ckpt, repeat=i, memory_mib=m) for i, m in enumerate(sizes)]
    (outcome,) = outcomes(claims(tmp_path, AMP), *runs)
    assert outcome.value == pytest.approx(35.0)  # 45 % and 25 %
    assert (outcome.least, outcome.most) == pytest.approx((25.0, 45.0))
    # Draws: both first: 40 and 20; one each: 45 and 25; both second: 50 and 30.
    assert (outcome.low, outcome.high) == pytest.approx((30.0, 40.0))
    assert (outcome.pairs, outcome.configurations) == (4, 2)
    # The mean lies in the range, but the 25 % with an interval of 20 to 30 % do not reach it.
    assert outcome.verdict == "does not hold"
    assert outcome.remark == (
        "1 of 2 configurations lie in the range; the interval crosses the range's end"
    )


def test_machines_are_judged_apart(tmp_path: Path) -> None:
    found = outcomes(
        claims(tmp_path, AMP),
        record("fp32", device_name="A100", memory_mib=100),
        record("amp", device_name="A100", memory_mib=60),
        record("fp32", device_name="H100", memory_mib=100),
        record("amp", device_name="H100", memory_mib=90),
    )
    assert [(o.machine, o.verdict) for o in found] == [
        ("A100", "holds"),
        ("H100", "does not hold"),
    ]


@pytest.mark.parametrize(
    ("records", "remark"),
    [
        ([record("fp32")], "no run is of this kind"),
        ([record("amp"), record("tf32")], "no run with precision=fp32 that agrees in all else"),
        ([record("fp32"), record("amp", memory_mib=None)], "the runs did not measure it"),
        ([], "there are no runs"),
    ],
)
def test_what_was_not_tested_says_why(tmp_path: Path, records: list[Record], remark: str) -> None:
    (outcome,) = outcomes(claims(tmp_path, AMP), *records)
    assert outcome.verdict == "not tested"
    assert outcome.remark == remark


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("time_saved_percent", 50.0), ("speed_percent", 100.0), ("speed_up", 2.0)],
)
def test_time_and_speed_are_told_apart(tmp_path: Path, metric: str, expected: float) -> None:
    text = AMP.replace("memory_saved_percent", metric)
    (outcome,) = outcomes(
        claims(tmp_path, text), record("fp32", step_s=0.2), record("amp", step_s=0.1)
    )
    assert outcome.value == pytest.approx(expected)


def test_scaling_efficiency_strong_and_weak(tmp_path: Path) -> None:
    text = """
- {id: s, metric: efficiency_percent, baseline: {gpus: 1}, variant: {gpus: {at_least: 2}},
   range: [95, 105]}
- {id: w, metric: weak_efficiency_percent, baseline: {gpus: 1}, variant: {gpus: {at_least: 2}},
   at_most: 90}
"""
    strong, weak = outcomes(
        claims(tmp_path, text),
        record(gpus=1, batch=8, step_s=0.100),
        record(gpus=2, batch=8, step_s=0.050),
        record(gpus=2, batch=16, step_s=0.125),
    )
    assert (strong.value, strong.verdict) == (pytest.approx(100.0), "holds")
    assert (weak.value, weak.verdict) == (pytest.approx(80.0), "holds")


def test_parity_of_accumulation(tmp_path: Path) -> None:
    text = """
- {id: p, metric: parity_percent, baseline: {accum: 1}, variant: {accum: 2}, at_least: 100}
"""
    same = outcomes(claims(tmp_path, text), record(accum=1), record(accum=2))
    other = outcomes(claims(tmp_path, text), record(accum=1), record(accum=2, loss=1.5))
    assert (same[0].value, same[0].verdict) == (100.0, "holds")
    assert (other[0].value, other[0].verdict) == (0.0, "does not hold")


def parts(parameters_mib: float, activations_mib: float) -> MemoryParts:
    return MemoryParts(
        parameters_bytes=int(parameters_mib * MIB),
        gradients_bytes=0,
        optimizer_bytes=0,
        activations_bytes=int(activations_mib * MIB),
    )


def test_a_figure_of_the_runs_themselves(tmp_path: Path) -> None:
    text = "- {id: a, metric: activations_over_parameters, where: {ckpt: off}, at_least: 2}"
    (outcome,) = outcomes(
        claims(tmp_path, text),
        record(memory_parts=parts(10, 40)),
        record("amp", memory_parts=parts(10, 20)),
        record(ckpt="on", memory_parts=parts(10, 1)),
    )
    assert (outcome.value, outcome.least, outcome.most) == (3.0, 2.0, 4.0)
    assert outcome.verdict == "holds"


def test_a_trend_needs_runs_that_differ_in_one_key_alone(tmp_path: Path) -> None:
    text = "- {id: t, trend: activations_bytes, along: micro_batch}"
    grows = [record(batch=b, memory_parts=parts(1, m)) for b, m in ((8, 1), (16, 2), (32, 4))]
    (outcome,) = outcomes(claims(tmp_path, text), *grows)
    assert (outcome.verdict, outcome.value, outcome.pairs) == ("holds", 100.0, 2)
    grows[2].memory.parts = parts(1, 1.5)
    (outcome,) = outcomes(claims(tmp_path, text), *grows)
    assert (outcome.verdict, outcome.value) == ("does not hold", 50.0)
    (outcome,) = outcomes(claims(tmp_path, text), record(), record("amp", batch=8))
    assert outcome.verdict == "not tested"


def fits(tmp_path: Path, *records: Record) -> Outcome:
    text = "- {id: f, fits: {gib: 24, machine: RTX 4090}, where: {model: dit_s, precision: amp}}"
    return outcomes(claims(tmp_path, text), *records)[0]


def held(gib: float, **more: Any) -> Record:
    one = record("amp", **more)
    one.memory.warm.peak_device_bytes = int(gib * 2**30)
    return one


def test_what_fits_is_shown_by_a_run_there_or_by_what_was_held_elsewhere(tmp_path: Path) -> None:
    there: dict[str, Any] = {"device_name": "NVIDIA GeForce RTX 4090"}
    assert fits(tmp_path, record("amp", **there)).verdict == "holds"
    too_small = record("amp", status="oom", memory_mib=None, **there)
    too_small.hardware.device_memory_bytes = int(23.6 * 2**30)
    failed = fits(tmp_path, too_small)
    assert (failed.verdict, failed.remark) == ("does not hold", "oom")
    small, large = fits(tmp_path, held(20.5)), fits(tmp_path, held(30.0))
    assert (small.verdict, small.remark) == ("holds", "it held 20.50 GiB elsewhere")
    assert large.verdict == "does not hold"
    # One way that fits is enough.
    assert fits(tmp_path, held(30.0), held(20.0, batch=8)).verdict == "holds"


def test_tensors_alone_show_what_cannot_fit_but_not_what_does(tmp_path: Path) -> None:
    assert fits(tmp_path, record("amp", memory_mib=30 * 1024)).verdict == "does not hold"
    assert fits(tmp_path, record("amp", memory_mib=10 * 1024)).verdict == "not tested"


def test_a_run_under_a_memory_limit_counts_as_that_device(tmp_path: Path) -> None:
    capped = record("amp", hardware__memory_limit_gib=24.0)
    outcome = fits(tmp_path, capped)
    assert (outcome.verdict, outcome.remark) == ("holds", "completed within a limit of 24 GiB")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "- {id: a, metric: memory_saved, baseline: {a: 1}, variant: {a: 2}, at_least: 1}",
            "did you mean memory_saved_percent",
        ),
        ("- {id: a, metric: speed_percent, baseline: {a: 1}, variant: {a: 2}}", "no range"),
        ("- {id: a, metric: speed_percent, baseline: {a: 1}, at_least: 1}", "belong together"),
        (
            "- {id: a, metric: speed_percent, range: [2, 1], baseline: {a: 1}, variant: {a: 2}}",
            "is empty",
        ),
        ("- {metric: peak_bytes, at_least: 1}", "lacks id"),
        ("- {id: a, metric: peak_bytes, at_least: x}", "is not a number"),
        ("- {id: a, metrics: peak_bytes}", "unknown key 'metrics'"),
        (
            "- {id: a, metric: peak_bytes, at_least: 1}\n- {id: a, metric: peak_bytes, at_most: 1}",
            "a twice",
        ),
        ("id: a", "is not a list"),
        ("- [", "cannot be read"),
        ("- 3", "is not a claim"),
        ("- !!python/object/apply:os.system ['echo']", "cannot be read"),
    ],
)
def test_a_wrong_claims_file_is_one_message(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        claims(tmp_path, text)


def test_an_unknown_key_leaves_the_claim_untested(tmp_path: Path) -> None:
    text = "- {id: a, metric: peak_bytes, where: {model.dept: 3}, at_least: 1}"
    (outcome,) = outcomes(claims(tmp_path, text), record())
    assert (outcome.verdict, outcome.remark) == ("not tested", "model.dept: no run has such a key")


def test_check_is_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write_sweep(
        tmp_path / "s", [record("fp32", memory_mib=100), record("amp", memory_mib=65)]
    )
    own = tmp_path / "own.yaml"
    own.write_text(AMP.replace("range: [35, 45]", "at_least: 30"))
    assert main(["check", str(sweep), "--claims", str(own)]) == 0
    assert "holds" in capsys.readouterr().out
    own.write_text(AMP.replace("range: [35, 45]", "at_least: 40"))
    assert main(["check", str(sweep), "--claims", str(own)]) == 1
    assert "does not hold: amp" in capsys.readouterr().err
    assert main(["check", str(sweep), "--claims", str(tmp_path / "none.yaml")]) == 2


def test_the_default_file_is_part_of_the_report(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record("fp32"), record("amp", memory_mib=60.0)])
    assert main(["report", str(sweep)]) == 0
    text = (sweep / "tables" / "claims.md").read_text()
    assert "Mixed precision saves 35 to 45 % of memory" in text
    assert DEFAULT_FILE.name == "claims.yaml"
