"""When a claim holds: over unlike configurations, devices of any size, and shared cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from analysis_records import MIB, plain, record, write_sweep

from analysis.__main__ import main
from analysis.claims import Claim, read_claims
from analysis.load import from_records
from analysis.outcome import Outcome, within
from analysis.study import Study
from analysis.tables.claims import build, table_of
from analysis.testing import test as run_claims
from sweeper.errors import UserError
from sweeper.record import MemoryParts, Record


def study(*records: Record) -> Study:
    return Study(from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)]))


def outcomes_of(tmp_path: Path, text: str, *records: Record) -> list[Outcome]:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    return run_claims(study(*records), read_claims(path))


def documents(*records: Record) -> dict[str, Outcome]:
    return {o.claim.id: o for o in run_claims(study(*records), read_claims())}


def change(metric: str, end: str, baseline: str = "precision: fp32", more: str = "") -> str:
    variant = {"precision: fp32": "precision: amp", "gpus: 1": "gpus: {at_least: 2}"}[baseline]
    return (
        f"- {{id: a, metric: {metric}, baseline: {{{baseline}}}, variant: {{{variant}}}, "
        f"{end}{more}}}"
    )


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


# --- what fits ------------------------------------------------------------------------------------


def fits(tmp_path: Path, *records: Record, gib: int = 80, machine: str = "A100") -> Outcome:
    text = f"- {{id: f, fits: {{gib: {gib}, machine: {machine}}}, where: {{gpus: 4}}}}"
    return outcomes_of(tmp_path, text, *records)[0]


def ended(status: str, name: str, gib: float | None = None, **more: Any) -> Record:
    one = record(gpus=4, status=status, device_name=name, memory_mib=None, **more)
    one.hardware.device_memory_bytes = None if gib is None else int(gib * 2**30)
    return one


@pytest.mark.parametrize(
    ("name", "gib", "verdict"),
    [
        ("A100 40GB", None, "not tested"),
        ("A100 (some rows exceed 80GB)", None, "not tested"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None, "not tested"),
        ("A100", 39.4, "not tested"),
        ("A100", 79.2, "does not hold"),
        ("A100 80G", None, "does not hold"),
        ("H200 140GB SXM", None, "does not hold"),
    ],
)
def test_running_out_of_memory_counts_on_no_smaller_a_device(
    tmp_path: Path, name: str, gib: float | None, verdict: str
) -> None:
    assert fits(tmp_path, ended("oom", name, gib)).verdict == verdict


@pytest.mark.parametrize("machine", ["A100", "a100", "Nvidia a100"])
def test_the_machine_is_found_in_any_case_of_letters(tmp_path: Path, machine: str) -> None:
    outcome = fits(tmp_path, ended("completed", "NVIDIA A100"), machine=machine)
    assert (outcome.verdict, outcome.remark) == ("holds", "completed")


def test_of_a_device_of_unknown_size_it_says_so(tmp_path: Path) -> None:
    outcome = fits(tmp_path, ended("oom", "A100"))
    assert outcome.remark == "a run ran out of memory on a device of unknown size"


@pytest.mark.parametrize(
    ("name", "gib", "verdict"),
    [("A100", 39.4, "holds"), ("A100", 79.2, "not tested"), ("RTX 3090", 23.7, "holds")],
)
def test_completing_counts_on_no_larger_a_device(
    tmp_path: Path, name: str, gib: float, verdict: str
) -> None:
    assert fits(tmp_path, ended("completed", name, gib), gib=40).verdict == verdict


@pytest.mark.parametrize(("limit", "verdict"), [(10.0, "not tested"), (80.0, "does not hold")])
def test_a_limit_below_the_claim_refutes_nothing(
    tmp_path: Path, limit: float, verdict: str
) -> None:
    one = ended("oom", "H200", 139.8, hardware__memory_limit_gib=limit)
    assert fits(tmp_path, one).verdict == verdict


# --- what the documents say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "verdict"), [(150_000_000, "holds"), (11_000_000, "not tested")]
)
def test_the_worked_case_is_about_150_million_parameters(parameters: int, verdict: str) -> None:
    runs = []
    for precision, ckpt, step in (("fp32", "off", 15.0), ("amp", "on", 4.0)):
        one = record(precision, ckpt, gpus=4, batch=256, step_s=step, device_name="RTX 3090")
        one.numerics.parameters = parameters
        runs.append(one)
    assert documents(*runs)["fifteen-days-to-four"].verdict == verdict


def parts(activations_mib: int) -> MemoryParts:
    return MemoryParts(
        parameters_bytes=10 * MIB,
        gradients_bytes=10 * MIB,
        optimizer_bytes=20 * MIB,
        activations_bytes=activations_mib * MIB,
    )


def test_activations_are_usually_the_largest_part() -> None:
    sizes = (30, 50, 10)  # of the optimizer's 20: 1.5, 2.5 and 0.5
    runs = [record(batch=8 * (i + 1), memory_parts=parts(m)) for i, m in enumerate(sizes)]
    outcome = documents(*runs)["activations-usually-largest"]
    assert outcome.value == pytest.approx(1.5)
    assert (outcome.verdict, outcome.inside, outcome.configurations) == ("holds", 2, 3)
    runs[0].memory.parts = parts(15)
    assert documents(*runs)["activations-usually-largest"].verdict == "does not hold"


def test_time_that_does_not_shrink_has_a_claim_for_each_kind_of_scaling() -> None:
    runs = [record(batch=8), record(gpus=2, batch=16, step_s=0.125)]  # 80 %
    found = documents(*runs)
    weak = found["time-does-not-shrink-linearly-weak"]
    assert (weak.verdict, weak.value) == ("holds", pytest.approx(80.0))
    assert found["time-does-not-shrink-linearly"].verdict == "not tested"


def test_resolution_is_a_models_or_an_imports() -> None:
    id_ = "activations-grow-with-resolution"
    own = [record(model__input_size=n, memory_parts=parts(n)) for n in (32, 64)]
    assert documents(*own)[id_].verdict == "holds"
    sizes = (("256x256 image, latent 32x32x4", 50), ("video 16x512x512", 90))
    known = [record(input=text, memory_mib=m) for text, m in sizes]
    outcome = documents(*known)[id_]
    assert (outcome.verdict, outcome.pairs, outcome.remark) == ("holds", 1, "by peak_bytes")
    shrinks = [record(input=text, memory_mib=100 - m) for text, m in sizes]
    assert documents(*shrinks)[id_].verdict == "does not hold"
    small = [record(model="x", input=t, memory_parts=parts(m)) for t, m in sizes]
    for one in small:
        one.identity.choices["model"] = "DiT-S/8"
    outcome = documents(*small)["dit-s-8-activations-outgrow-parameters"]
    assert (outcome.configurations, outcome.value) == (1, pytest.approx(9.0))


def test_one_condition_of_several_suffices(tmp_path: Path) -> None:
    text = "- {id: a, metric: peak_bytes, where: {any_of: [{gpus: 2}, {nothing: 1}]}, at_least: 1}"
    (outcome,) = outcomes_of(tmp_path, text, record(), record(gpus=2))
    assert outcome.configurations == 1
    (outcome,) = outcomes_of(tmp_path, text.replace("gpus", "gpu_s"), record())
    assert outcome.remark == "gpu_s: no run has such a key"


def test_numbers_as_yaml_reads_them_and_as_one_writes_them(tmp_path: Path) -> None:
    one = record()
    one.numerics.parameters = 150_000_000
    where = "where: {parameters: {at_least: 1.4e8}}"
    (outcome,) = outcomes_of(
        tmp_path, f"- {{id: a, metric: peak_bytes, {where}, at_most: 1e9}}", one
    )
    assert outcome.verdict == "holds"
    (outcome,) = outcomes_of(
        tmp_path, "- {id: a, metric: peak_bytes, where: {gpus: {at_most: x}}, at_most: 1}", one
    )
    assert (outcome.verdict, outcome.remark) == ("not tested", "x: is not a number")
    with pytest.raises(UserError, match="use one of all, most, some"):
        outcomes_of(tmp_path, change("speed_percent", "at_most: 1", more=", configurations: few"))
