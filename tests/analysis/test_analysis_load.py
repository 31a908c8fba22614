"""When records are read, nothing is lost silently and nothing bad stops the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis_records import plain, record, write_sweep

from analysis import bulk
from analysis.load import from_records, load
from analysis.schema import kinds
from sweeper.errors import UserError
from sweeper.record import RECORD_FILE, Record, State, write_identity, write_state


def test_one_row_per_run_with_units_in_the_names(tmp_path: Path) -> None:
    sweep = write_sweep(
        tmp_path / "s", [record("fp32"), record("amp", memory_mib=60.0, step_s=0.05)]
    )
    frame = load([sweep]).frame
    assert len(frame) == 2
    amp = frame[frame["precision"] == "amp"].iloc[0]
    assert amp["memory.warm.peak_allocated_bytes"] == 60 * 2**20
    assert amp["peak_bytes"] == 60 * 2**20
    assert amp["peak_kind"] == "allocated"
    assert amp["time.step_time_s"] == 0.05
    assert amp["config.optim.lr"] == 1e-3
    assert amp["choices.precision"] == "amp"
    assert amp["gpus"] == 1


def test_every_field_of_the_schema_is_a_column(tmp_path: Path) -> None:
    frame = load([write_sweep(tmp_path / "s", [record()])]).frame
    assert set(kinds()) <= set(frame.columns)


def test_cpu_peak_is_that_of_live_tensors(tmp_path: Path) -> None:
    frame = load([write_sweep(tmp_path / "s", [record(device="cpu", memory_mib=5.0)])]).frame
    assert frame["peak_bytes"].tolist() == [5 * 2**20]
    assert frame["peak_kind"].tolist() == ["live tensors"]
    assert frame["machine"].tolist() == ["CPU EPYC (2 cores)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"schema_version": 1, "iden', "not readable as JSON"),
        ("", "not readable as JSON"),
        ('{"loss": 3}', "no schema_version"),
        ("[1, 2]", "no schema_version"),
        ('{"schema_version": 99}', "newer than this program's"),
        ('{"schema_version": 1, "memory": 7}', "memory: expected an object"),
    ],
)
def test_a_bad_record_is_named_and_the_rest_stays(tmp_path: Path, text: str, expected: str) -> None:
    sweep = write_sweep(tmp_path / "s", [record("fp32"), record("amp")])
    (sweep / "run000" / RECORD_FILE).unlink()
    (sweep / "run000" / RECORD_FILE).write_text(text)
    found = load([sweep])
    assert found.frame["precision"].tolist() == ["amp"]
    assert len(found.problems) == 1
    assert "run000" in found.problems[0].where
    assert expected in found.problems[0].message


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("time", "step_time_s"), "fast", "time.step_time_s: expected a number, found 'fast'"),
        (("time", "step_time_s"), True, "time.step_time_s: expected a number, found True"),
        (("identity", "run_id"), None, "run_id: expected a known text, found None"),
        (("status",), "fine", "status: expected a known text, found 'fine'"),
        (("numerics", "global_batch"), 1.5, "numerics.global_batch: expected an integer"),
    ],
)
def test_a_value_of_the_wrong_kind_leaves_the_record_out(
    path: tuple[str, ...], value: object, expected: str
) -> None:
    bad = plain(record("amp"))
    node = bad
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    found = from_records([("good", plain(record("fp32"))), ("bad", bad)])
    assert found.frame["precision"].tolist() == ["fp32"]
    assert [p.where for p in found.problems] == ["bad"]
    assert expected in found.problems[0].message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_not_measured(tmp_path: Path, value: float) -> None:
    sweep = write_sweep(tmp_path / "s", [record("fp32"), record("amp")])
    data = plain(record("amp"))
    data["loss"]["train_last"] = value
    (sweep / "run001" / RECORD_FILE).write_text(json.dumps(data))
    found = load([sweep])
    assert len(found.frame) == 2
    amp = found.frame[found.frame["precision"] == "amp"].iloc[0]
    assert math.isnan(amp["loss.train_last"])
    assert amp["loss.validation_last"] == 1.1
    assert "loss.train_last is not finite" in found.problems[0].message


def test_a_run_found_twice_is_counted_once_and_named(tmp_path: Path) -> None:
    one = record("fp32")
    sweep = write_sweep(tmp_path / "s", [one])
    copy = write_sweep(tmp_path / "copy", [one])
    assert len(load([sweep, sweep]).frame) == 1
    assert load([sweep, sweep]).problems == ()
    found = load([sweep, copy])
    assert len(found.frame) == 1
    assert "is there twice" in found.problems[0].message
    assert str(copy) in found.problems[0].where


def test_a_repeated_seed_is_counted_once_and_named() -> None:
    runs = [record(seed=s, run_id=f"id{i}", repeat=0) for i, s in enumerate((0, 1, 0))]
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(runs)])
    assert found.frame["seed"].tolist() == [0, 1]
    assert [p.where for p in found.problems] == ["run2"]


def test_one_configuration_in_two_sweeps_is_two_runs() -> None:
    runs = [record(sweep="monday"), record(sweep="tuesday")]
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(runs)])
    assert len(found.frame) == 2
    assert found.problems == ()


def test_a_run_without_a_record_is_listed_with_its_state(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record("fp32")])
    for name, state in (
        ("queued", None),
        ("running", State(state="running", step=7, total_steps=40)),
    ):
        (sweep / name).mkdir()
        write_identity(sweep / name, record("amp").identity)
        if state:
            write_state(sweep / name, state)
    (sweep / "tables").mkdir()
    found = load([sweep])
    assert len(found.frame) == 1
    assert [str(u) for u in found.unfinished] == [
        "precision=amp+ckpt=off: queued",
        "precision=amp+ckpt=off: running, step 7 of 40",
    ]


def test_odd_config_values_can_be_compared_and_grouped() -> None:
    first = plain(record("fp32"))
    first["config"] |= {"encoder": ["linear", {"_name_": "x"}], "model.type": "vit", "resume": None}
    second = plain(record("amp"))
    second["config"] |= {"encoder": [], "resume": True, "flag": 1}
    third = plain(record("bf16"))
    third["config"] |= {"resume": 1, "lr": math.nan}
    frame = from_records([("a", first), ("b", second), ("c", third)]).frame
    assert frame["config.encoder"].tolist() == ['["linear",{"_name_":"x"}]', "[]", None]
    assert frame["config.model.type"].tolist() == ["vit", None, None]
    assert frame["config.resume"].tolist() == [None, True, 1]
    assert type(frame["config.resume"].iloc[2]) is int
    assert frame["config.lr"].tolist() == [None, None, "nan"]
    assert frame.groupby("config.encoder", dropna=False).size().tolist() == [1, 1, 1]


def test_a_dotted_key_and_the_nested_one_are_one_column() -> None:
    data = plain(record())
    data["config"] |= {"model.depth": 99}
    assert from_records([("a", data)]).frame["config.model.depth"].tolist() == [4]


def test_times_and_rates_complete_each_other() -> None:
    data = plain(record(batch=64))
    data["time"] |= {"step_time_s": None, "samples_per_s": 128.0}
    assert from_records([("a", data)]).frame["time.step_time_s"].tolist() == [0.5]


def test_a_directory_of_sweeps_names_the_sweeps_in_it(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweeps" / "mine", [record()])
    with pytest.raises(UserError, match=r"holds no runs(.|\n)*sweeps/mine"):
        load([tmp_path / "sweeps"])


@pytest.mark.parametrize("name", ["missing", "empty", "a file"])
def test_a_wrong_directory_is_one_message(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").touch()
    with pytest.raises(UserError, match=name):
        load([tmp_path / name])


def test_a_single_run_directory_is_read_too(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [record("fp32"), record("amp")])
    assert load([sweep / "run001"]).frame["precision"].tolist() == ["amp"]


def _odd_records() -> list[Record]:
    """Every way in which a config may differ from run to run."""
    runs = [record("fp32", repeat=i) for i in range(3)]
    runs += [record("amp", foo=[1, 2]), record("bf16", foo=["a", "b"]), record("tf32", foo=[])]
    runs += [record("fp32", repeat=5, foo=[1, 0.5]), record("fp32", repeat=6, foo=[1.0, 2.0])]
    runs += [record("fp32", repeat=7, foo=[None, 1]), record("fp32", repeat=8, foo=[True])]
    runs += [record("fp32", "on", foo=[""], bar={}), record("amp", "on", bar={"a": None})]
    runs += [record("amp", accum=2, bar={"a": 1.5}), record("amp", accum=3, note="2024-01-01")]
    runs += [record("fp32", accum=4, flag=True), record("fp32", accum=5, flag=1, note="x|<b>")]
    runs += [record("amp", gpus=2, note="实验一\n\x1f"), record("amp", gpus=3, nested=[{"a": [1]}])]
    runs += [record("amp", gpus=4, status="failed", error="boom\nmore", step_s=None)]
    return runs


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_batches_of_any_size_and_threads_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    sweep = write_sweep(tmp_path / "s", _odd_records())
    (sweep / "run002" / RECORD_FILE).write_text("{")
    monkeypatch.setattr("analysis.load.BATCH", size)
    found = load([sweep], workers=2)
    monkeypatch.setattr("analysis.bulk.read", lambda where, texts: None)
    slow = load([sweep], workers=1)
    assert found.problems == slow.problems
    assert set(found.frame) - set(slow.frame) == set()
    for name in slow.frame:
        own = found.frame[name] if name in found.frame else [None] * len(slow.frame)
        pairs = zip(own, slow.frame[name], strict=True)
        assert all(a == b or (pd.isna(a) and pd.isna(b)) for a, b in pairs), name


def test_ordinary_records_take_the_quick_way() -> None:
    texts = [json.dumps(plain(r), indent=1).encode() for r in (record("fp32"), record("amp"))]
    assert bulk.read(["a", "b"], texts) is not None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"schema_version": 1}', b'{"schema_version": 99}', b"{} {}", b"\xff{}"],
)
def test_odd_records_leave_the_quick_way(text: bytes) -> None:
    good = json.dumps(plain(record())).encode()
    assert bulk.read(["a", "b"], [good, text]) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("time", "step_time_s"), "fast"),
        (("time", "step_time_s"), True),
        (("time", "steady"), 1),
        (("numerics", "global_batch"), 1.5),
        (("software", "torch"), 2.1),
        (("status",), "fine"),
        (("identity", "run_id"), None),
        (("memory",), 7),
        (("loss", "train_last"), float("nan")),
    ],
)
def test_a_value_of_the_wrong_kind_leaves_the_quick_way(path: tuple[str, ...], value: Any) -> None:
    data = plain(record())
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    assert bulk.read(["a"], [json.dumps(data).encode()]) is None
