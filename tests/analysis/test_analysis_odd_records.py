"""One odd record among many: it is named, and the rest is as it would be without it."""

from __future__ import annotations

from typing import Any

import pytest
from analysis_records import plain, record

from analysis.load import Loaded, from_records
from analysis.render import FORMATS
from analysis.scaling import curves, gpu_counts
from analysis.study import Study
from analysis.tables import TABLES


def changed(path: str, value: Any) -> Any:
    """A record with one odd value."""
    data = plain(record(gpus=2, step_s=0.05, sweep="odd"))
    node = data
    *above, last = path.split(".")
    for key in above:
        node = node[key]
    node[last] = value
    return data


def loaded(*odd: Any) -> Loaded:
    sound = [plain(record(gpus=n, step_s=0.1 / n)) for n in (1, 4)]
    return from_records([(f"run{i}", data) for i, data in enumerate([*sound, *odd])])


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("identity", None),
        ("identity.choices", None),
        ("identity.choices", {"gpus": [1, 2], "ckpt": {"on": [True]}, "model": ["a"]}),
        ("config", None),
        ("config", {"deep": deep(2000)}),
        ("config.gpus.count", [0, 1]),
        ("config.gpus.count", "auto"),
        ("config.gpus.count", 0),
        ("config.gpus.count", 10**400),
        ("config.seed", 10**400),
        ("config.accum.steps", -(10**400)),
        ("config.batch.size", "all"),
        ("config.model.depth", "half a character: \ud800"),
        ("software.torch", "\ud800"),
        ("identity.overrides", ["\ud800=1", 3, None, {"a": 1}]),
        ("memory", None),
        ("time", None),
        ("numerics", None),
        ("hardware", None),
        ("software", None),
        ("error", None),
    ],
)
def test_no_record_breaks_the_tables(path: str, value: Any) -> None:
    found = loaded(changed(path, value))
    study = Study(found)
    assert {"run0", "run1"} <= set(found.frame["where"])
    assert len(found.frame) + len(found.problems) >= 3  # in the tables, or named
    for build in TABLES.values():
        table = build(study)
        if table is not None:
            for _, render in FORMATS.values():
                render(table).encode("utf-8")


def test_an_unknown_number_of_gpus_is_not_one() -> None:
    study = Study(loaded(changed("config.gpus.count", "auto")))
    strong = curves(study, "strong")
    counts = dict(zip(study.configurations["axis.gpus"], gpu_counts(study), strict=True))
    assert (counts[1], counts[4]) == (1.0, 4.0)
    (odd,) = (i for i, v in enumerate(study.configurations["axis.gpus"]) if v == "auto")
    assert strong.gpus[odd] != strong.gpus[odd]
    assert strong.curve[odd] == -1
    assert strong.speed_up[odd] != strong.speed_up[odd]
    assert sorted(strong.curve[strong.curve >= 0].tolist()) == [0, 0]


def test_a_curve_needs_two_known_numbers_of_gpus() -> None:
    data = [plain(record(step_s=0.1)), changed("config.gpus.count", "auto")]
    study = Study(from_records([(f"run{i}", d) for i, d in enumerate(data)]))
    assert (curves(study, "strong").curve == -1).all()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("time.step_time_s", 0.0, "time.step_time_s is 0, not above 0; taken as not measured"),
        ("time.step_time_s", -1.0, "time.step_time_s is -1, not above 0; taken as not measured"),
        ("time.samples_per_s", 0.0, "time.samples_per_s is 0, not above 0; taken as not measured"),
        (
            "memory.warm.peak_allocated_bytes",
            -5,
            "memory.warm.peak_allocated_bytes is -5, not above 0; taken as not measured",
        ),
        (
            "memory.warm.peak_allocated_bytes",
            0,
            "memory.warm.peak_allocated_bytes is 0, not above 0; taken as not measured",
        ),
        (
            "memory.parts.activations_bytes",
            -1,
            "memory.parts.activations_bytes is -1, not 0 or more; taken as not measured",
        ),
    ],
)
def test_what_cannot_be_counts_as_not_measured_and_is_listed(
    path: str, value: float, message: str
) -> None:
    found = loaded(changed(path, value))
    assert [str(problem) for problem in found.problems] == [f"run2: {message}"]
    odd = found.frame[found.frame["where"] == "run2"].iloc[0]
    if path.startswith("memory."):
        assert odd[path] != odd[path]
    if path.startswith("memory.warm"):
        assert odd["peak_bytes"] != odd["peak_bytes"]
    table = TABLES["left_out"](Study(found))
    assert table is not None
    assert message in table.frame["message"].tolist()


def test_a_step_time_that_cannot_be_follows_from_the_rate() -> None:
    found = loaded(changed("time.step_time_s", 0.0))
    odd = found.frame[found.frame["where"] == "run2"].iloc[0]
    assert odd["time.step_time_s"] == pytest.approx(0.05)  # 64 samples at 1280 per s


def test_an_empty_batch_makes_no_rate() -> None:
    data = changed("config.batch.size", 0)
    data["numerics"]["global_batch"], data["time"]["samples_per_s"] = 0, None
    odd = loaded(data).frame.iloc[2]
    assert odd["global_batch"] != odd["global_batch"]
    assert odd["time.samples_per_s"] != odd["time.samples_per_s"]
