"""Advice: what fires, with which figures, and what stays silent."""

from __future__ import annotations

import pytest
from analysis_records import MIB, plain, record
from report_sweeps import full_grid, out_of_memory, steps

from analysis.advice import RULES, advise, as_text
from analysis.advice.advice import Advice
from analysis.load import from_records
from analysis.study import Study
from sweeper.record import Record


def _study(*records: Record) -> Study:
    return Study(from_records((f"r{i}", plain(one)) for i, one in enumerate(records)))


def _advice(rule: str, *records: Record) -> list[Advice]:
    return RULES[rule](_study(*records))


def _oom(**changed: object) -> Record:
    one = record(
        batch=128, status="oom", memory_mib=None, step_s=None, error="no memory", **changed
    )  # type: ignore[arg-type]  # passed on
    one.hardware.device_memory_bytes = 256 * MIB
    return one


def test_advice_without_evidence_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="without evidence"):
        Advice("rule", "finding", "action", (), ("run",))


def test_a_run_out_of_memory_gets_the_change_that_fits_and_its_cost() -> None:
    (found,) = _advice(
        "memory",
        _oom(),
        record(ckpt="on", batch=128, memory_mib=200, step_s=0.5, run_id="fits"),
        # What ckpt costs shows where both completed: 0.125 s for 0.100 s.
        record(batch=64, step_s=0.100),
        record(ckpt="on", batch=64, step_s=0.125),
    )
    assert found.finding.endswith("ran out of memory.")
    assert "ckpt=on" in found.action
    evidence = "\n".join(found.evidence)
    assert "no memory" in evidence
    assert "limit 256.0 MiB" in evidence
    assert "ckpt=on fits: 200.0 MiB measured" in evidence
    assert "(run fits)" in evidence
    assert "ckpt=off to ckpt=on changed the step time by +25 % (1 pair of runs)" in evidence
    assert "batch.size=64 fits: 100.0 MiB measured" in evidence


def test_the_option_with_the_most_throughput_comes_first() -> None:
    (found,) = _advice(
        "memory",
        _oom(),
        record(ckpt="on", batch=128, step_s=0.5),
        record(accum=2, batch=128, step_s=0.4),
    )
    assert found.action.startswith("Change one setting: accum=2, or ckpt=on.")


def test_a_neighbour_that_does_not_fit_either_is_named_as_that() -> None:
    (found,) = _advice(
        "memory",
        _oom(),
        record("amp", batch=128, status="oom", memory_mib=None, step_s=None, run_id="amp-too"),
        record("amp", "on", batch=128, memory_mib=150, run_id="both"),
    )[:1]
    assert "two together do: precision=amp ckpt=on" in found.action
    assert any("precision=amp does not fit either (run amp-too)" in e for e in found.evidence)
    assert any("(run both)" in e for e in found.evidence)


def test_an_estimate_may_show_the_way_and_is_called_one() -> None:
    estimate = record(ckpt="on", batch=128, memory_mib=200, step_s=None, device_name=None)
    estimate.source = "estimate"
    too_large = record("amp", batch=128, memory_mib=300, step_s=None, device_name=None)
    too_large.source = "estimate"
    (found,) = _advice("memory", _oom(), estimate, too_large)
    evidence = "\n".join(found.evidence)
    assert "ckpt=on fits: 200.0 MiB estimated" in evidence
    assert "precision=amp does not fit either" in evidence


def test_another_machine_shows_no_way_out() -> None:
    (found,) = _advice("memory", _oom(), record(ckpt="on", batch=128, device_name="H100"))
    assert "none shows a way out" in found.action


def test_a_run_that_waits_for_data_is_told_so_with_its_figures() -> None:
    slow, fine = record(run_id="slow"), record(precision="amp", run_id="fine")
    for one, wait in ((slow, 0.04), (fine, 0.001)):
        one.time.step_time_mean_s = 0.1
        one.time.parts = steps()
        one.time.parts.data_wait_s = wait
    slow.utilization.gpu_percent = 55.0
    fine.utilization.gpu_percent = 95.0
    (found,) = _advice("utilization", slow, fine)
    assert found.runs == ("slow",)
    assert "device busy 55 % of the time" in found.evidence[0]
    assert "40.0 ms of 100 ms a step (40 %)" in found.evidence[0]


def test_a_busy_device_gets_no_advice_whatever_its_batch() -> None:
    small, large = record(batch=32, step_s=0.1), record(batch=64, step_s=0.1)
    for one in (small, large):
        one.utilization.gpu_percent = 95.0
    assert _advice("utilization", small, large) == []
    small.utilization.gpu_percent = 40.0
    (found,) = _advice("utilization", small, large)
    assert "with batch.size=64 640 samples per s, +100 %" in found.evidence[0]


def test_a_host_that_cannot_keep_up_shows_in_the_two_clocks() -> None:
    one = record()
    one.time.host_bound = True
    one.time.host_step_time_s = 0.15
    (found,) = _advice("utilization", one, record(precision="amp"))
    assert "100 ms a step by the device's clock, 150 ms by the host's" in found.evidence[0]


def test_poor_scaling_names_the_part_of_the_step_that_costs_most() -> None:
    found = _advice(
        "scaling",
        record(gpus=1, step_s=0.1, parts=steps()),
        record(
            gpus=4,
            step_s=0.075,
            parts=steps(forward=0.0075, backward=0.015, communication=0.045),
            run_id="four",
        ),
    )
    (one,) = found
    assert "communication" in one.finding
    assert one.runs == ("four",)
    assert "speed-up 1.33 on 4, efficiency 33 %" in one.evidence[0]
    assert "communication 45.0 ms" in one.evidence[0]


def test_good_scaling_gets_no_advice() -> None:
    assert not _advice("scaling", record(gpus=1, parts=steps()), record(gpus=2, step_s=0.051))


def test_processes_that_share_cores_are_not_told_about_gpus() -> None:
    records = [record(gpus=n, device="cpu", step_s=0.1, parts=steps()) for n in (1, 8)]
    (found,) = _advice("scaling", *records)
    assert "more processes than the machine has cores" in found.finding
    assert "8 processes, 2 cores" in found.evidence[0]


def test_memory_left_over_is_named_where_a_larger_batch_was_faster() -> None:
    small, large = record(batch=32, memory_mib=60, step_s=0.1), record(batch=64, step_s=0.1)
    for one in (small, large):
        one.hardware.device_memory_bytes = 200 * MIB
    (found,) = _advice("practice", small, large)
    assert "60.0 MiB of 200.0 MiB" in found.evidence[0]
    assert "+100 %" in found.evidence[0]


def test_every_rule_is_silent_about_runs_that_are_well() -> None:
    records = [one for one in full_grid() if one.hardware.world_size == 1]
    assert advise(_study(*records)) == []
    assert as_text([]).startswith("No advice")


def test_no_runs_give_no_advice() -> None:
    assert advise(Study(from_records([]))) == []


def test_every_line_of_evidence_names_a_run() -> None:
    ids = {one.identity.run_id for one in (*full_grid(), out_of_memory())}
    found = advise(_study(*full_grid(), out_of_memory()))
    assert found
    for advice in found:
        assert set(advice.runs) <= ids
        assert all("(run " in line for line in advice.evidence if not line.startswith("and "))


def test_out_of_memory_never_means_another_model_data_set_or_seed() -> None:
    (found,) = _advice(
        "memory",
        _oom(),
        record(batch=128, step_s=0.1, model__depth=2),
        record(batch=128, step_s=0.1, optim__lr=0.5),
        record(batch=128, step_s=0.1, data__size=1),
        record(batch=128, ckpt="on", step_s=0.1, optim__lr=0.5),
    )
    assert "none shows a way out" in found.action
    assert len(found.evidence) == 1


def test_a_change_of_the_global_batch_is_said_beside_the_option() -> None:
    (found,) = _advice("memory", _oom(), record(batch=64), record(ckpt="on", batch=128, step_s=1.0))
    assert found.action.startswith(
        "Change one setting: batch.size=64 (the global batch is then 64, not 128), or ckpt=on."
    )
    assert "(run s-fp32-off-1-1-64-A100-[]-0); the global batch is then 64, not 128;" in "\n".join(
        found.evidence
    )


def _waiting(wait: float, run_id: str, **changed: str) -> Record:
    """`wait` seconds of a step of 0.1 s."""
    one = record(run_id=run_id, **changed)  # type: ignore[arg-type]  # passed on
    one.time.step_time_mean_s = 0.1
    one.time.parts = steps()
    one.time.parts.data_wait_s = wait
    return one


def test_a_short_wait_for_data_is_bounded_by_the_figures() -> None:
    (found,) = _advice("utilization", _waiting(0.0125, "short"), record("amp"))
    # 0.1 / 0.0875 = 1.14.
    assert "without the wait a step would take 87.5 ms, at most 14 % faster." in found.action
    assert "cannot help" not in found.action
    assert "at most 14 % faster" in found.evidence[0]


def test_a_wait_of_most_of_the_step_is_told_apart_from_a_short_one() -> None:
    most, part = _advice(
        "utilization", _waiting(0.06, "most"), _waiting(0.02, "part", precision="amp")
    )
    assert (most.runs, part.runs) == (("most",), ("part",))
    assert "cannot help before that" in most.action
    assert "without the wait a step would take 40.0 ms, at most 150 % faster" in most.evidence[0]
    assert "would take 80.0 ms, at most 25 % faster" in part.action
