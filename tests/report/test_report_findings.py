"""Headlines of the summary: whose memory, among which runs, over how many pairs."""

from __future__ import annotations

from analysis_records import plain, record

from analysis.html.findings import summarize
from analysis.load import from_records
from analysis.study import Study
from analysis.tables.claims import build as build_claims
from sweeper.record import Record


def _study(*records: Record) -> Study:
    return Study(from_records((f"r{i}", plain(one)) for i, one in enumerate(records)))


def _told(*records: Record) -> list[str]:
    return [finding.text for finding in summarize(_study(*records))]


def _one(found: list[str], start: str) -> str:
    (only,) = [one for one in found if one.startswith(start)]
    return only


def test_on_a_cpu_the_memory_of_one_process_is_not_that_of_the_run() -> None:
    found = _told(
        record(gpus=1, device="cpu", memory_mib=20.0),
        record(gpus=8, device="cpu", memory_mib=5.0, step_s=0.2),
    )
    least = _one(found, "Least memory")
    # 5 / 20 for one process; 8 x 5 = 40 against 20 in all.
    assert "gpus=8, 5.00 MiB per process (40.0 MiB in all)" in least
    assert "75 % less memory per process (100 % more in all)" in least


def test_on_gpus_it_is_per_gpu_where_their_number_varies() -> None:
    records = [record(gpus=1, memory_mib=200.0), record(gpus=4, memory_mib=50.0, step_s=0.2)]
    assert "gpus=4, 50.0 MiB per GPU at" in _one(_told(*records), "Least memory")
    alone = _one(_told(record(memory_mib=200.0), record("amp", memory_mib=50.0)), "Least memory")
    assert "precision=amp, 50.0 MiB at" in alone
    assert "75 % less memory and" in alone


def _of_model(name: str, precision: str, memory_mib: float, step_s: float, batch: int) -> Record:
    one = record(precision, memory_mib=memory_mib, step_s=step_s, batch=batch)
    one.identity.config_id += name
    one.identity.run_id += name
    one.identity.choices["model"] = name
    return one


def test_the_least_is_named_for_each_model_and_global_batch() -> None:
    found = _told(
        _of_model("small", "fp32", 10.0, 0.1, 64),
        _of_model("small", "amp", 8.0, 0.1, 64),
        _of_model("large", "fp32", 100.0, 0.4, 64),
        _of_model("large", "amp", 70.0, 0.2, 64),
        _of_model("large", "amp", 50.0, 0.1, 32),  # alone: the best of nothing
    )
    small = _one(found, "model=small, global batch 64: Least memory")
    large = _one(found, "model=large, global batch 64: Least memory")
    assert "8.00 MiB" in small
    assert "70.0 MiB" in large
    assert "320 samples per s" in _one(found, "model=large, global batch 64: Fastest")
    assert len([one for one in found if "Least memory" in one]) == 2


def test_pairs_are_counted_for_each_figure() -> None:
    records = [record(p, c) for p in ("fp32", "amp") for c in ("off", "on")]
    records[2].loss.validation_last = None  # amp off
    findings = [f for f in summarize(_study(*records)) if f.text.startswith("precision=amp")]
    assert [f.evidence for f in findings] == [
        "memory: 2 pairs of runs in 2 configurations; speed: 2 pairs of runs in 2 configurations; "
        "validation loss: 1 pair of runs in 1 configuration"
    ]
    (ckpt,) = [f for f in summarize(_study(*records[:2])) if f.text.startswith("ckpt=on")]
    assert ckpt.evidence == "1 pair of runs in 1 configuration"


def test_the_summary_says_how_many_claims_hold() -> None:
    study = _study(record("fp32"), record("amp", memory_mib=95.0, step_s=0.08))
    table = build_claims(study)
    assert table is not None
    verdicts = table.frame["verdict"].tolist()
    held, failed, untested = map(verdicts.count, ("holds", "does not hold", "not tested"))
    assert failed > 0  # 5 % of memory saved is less than any claim says
    assert untested > 0
    (found,) = [f for f in summarize(study) if f.anchor == "table-claims"]
    assert found.text == f"Claims: {held} hold, {failed} do not hold, {untested} not tested."
