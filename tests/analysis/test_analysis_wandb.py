"""Runs from W&B: a fake listing that misbehaves, the real client on loopback, offline folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis_records import plain, record

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))

from loopback_wandb import LoopbackWandb

from analysis.load import join_chunks
from analysis.sources import read
from analysis.wandb_offline import entries, read_offline
from analysis.wandb_source import read_project
from sweeper.errors import UserError
from sweeper.record import Record

ROOT = Path(__file__).parents[2]
ODD = {"encoder": ["linear", {"_name_": "x"}], "model.type": "vit", "resume": None}


class FakeRun:
    group = "sweep"
    state = "finished"

    def __init__(self, number: int, summary: dict[str, Any] | None = None) -> None:
        self.id = f"run{number}"
        self.config = ODD if number % 2 else {**ODD, "resume": "yes"}
        self.summary_metrics = summary or {}


class FakeListing:
    """Pages of 50; 7 runs come twice, in place of 7 others."""

    def __init__(self, total: int = 10_000, doubled: int = 7) -> None:
        self.total, self.doubled, self.pages = total, doubled, 0

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[FakeRun]:
        for start in range(0, self.total, 50):
            self.pages += 1
            for number in range(start, min(start + 50, self.total)):
                again = number % 50 == 0 and 0 < number <= 50 * self.doubled
                yield FakeRun(number - 1 if again else number)


class FakeApi:
    def __init__(self, listing: Any) -> None:
        self.listing, self.calls = listing, 0

    def runs(self, path: str, *, per_page: int, lazy: bool) -> Any:
        assert not lazy  # a lazy run is a call of its own
        self.calls += 1
        return self.listing


def test_pages_that_shift_are_noticed_and_no_run_costs_a_call() -> None:
    api = FakeApi(FakeListing())
    chunk = read_project("me/project", api)
    loaded = join_chunks([chunk])
    assert len(loaded.frame) == 9_993
    assert loaded.frame["run_id"].is_unique
    assert "repeats 7 runs, and 7 are missing" in loaded.problems[0].message
    assert len(loaded.problems) == 1
    assert api.listing.pages + api.calls <= 201


def test_lists_dots_and_nulls_can_be_grouped() -> None:
    frame = join_chunks([read_project("me/project", FakeApi(FakeListing(100, 0)))]).frame
    keys = ["config.encoder", "config.model.type", "config.resume"]
    assert frame.groupby(keys, dropna=False).size().tolist() == [50, 50]
    assert frame["config.encoder"].unique().tolist() == ['["linear",{"_name_":"x"}]']


def test_records_travel_whole() -> None:
    one = record("amp", memory_mib=60.0)
    listing = [FakeRun(1, {"record": json.dumps(plain(one)), "status": "completed"})]
    frame = join_chunks([read_project("me/project", FakeApi(listing))]).frame
    assert frame["peak_bytes"].tolist() == [60 * 2**20]
    assert frame["precision"].tolist() == ["amp"]
    assert frame["run_id"].tolist() == [one.identity.run_id]


def test_runs_that_failed_or_still_run_are_told_apart() -> None:
    crashed, running = FakeRun(1), FakeRun(2)
    crashed.state, running.state = "crashed", "running"
    loaded = join_chunks([read_project("me/p", FakeApi([crashed, running]))])
    assert loaded.frame["status"].tolist() == ["killed"]
    assert "W&B says crashed" in loaded.frame["reason"].iloc[0]
    assert "1 runs have not ended: run2" in loaded.problems[0].message


class Refusing:
    def runs(self, path: str, *, per_page: int, lazy: bool) -> Any:
        raise ValueError(f"Could not find project {path}\nmore")


def test_a_project_that_does_not_exist_is_one_message() -> None:
    with pytest.raises(UserError, match="Could not find project me/nothing") as error:
        read_project("me/nothing", Refusing())
    assert "more" not in str(error.value)


# ---- the real client ----

LOG = """
import json, sys, wandb
for item in json.load(open(sys.argv[1])):
    identity = item["record"]["identity"]
    run = wandb.init(project="demo", id=identity["run_id"], group="sweep", config={"a": 1})
    run.log({"train/loss": 1.0})
    if item["finished"]:
        run.summary["record"] = json.dumps(item["record"])
    run.finish()
"""


def _small(number: int) -> Record:
    return record("amp", repeat=number, run_id=f"run{number:04d}", step_s=0.1 + number / 100)


def _log(tmp_path: Path, items: list[dict[str, Any]], **environment: str) -> None:
    data = tmp_path / "items.json"
    data.write_text(json.dumps(items))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    subprocess.run(
        [sys.executable, "-c", LOG, str(data)],
        cwd=tmp_path,
        env={**kept, "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", **environment},
        check=True,
        timeout=300,
        capture_output=True,
    )


READ = """
import sys
from analysis.sources import read
loaded = read(["wandb:local/" + sys.argv[1]])
print(len(loaded.frame), loaded.frame["time.step_time_s"].sum().round(6), len(loaded.problems))
"""


def _read_online(server: LoopbackWandb, project: str, tmp_path: Path) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    return subprocess.run(
        [sys.executable, "-c", READ, project],
        cwd=tmp_path,
        env={**kept, **server.environment(), "PYTHONPATH": path, "HOME": str(tmp_path)},
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_real_client_reads_what_the_real_client_wrote(tmp_path: Path) -> None:
    items = [{"record": plain(_small(i)), "finished": True} for i in range(3)]
    with LoopbackWandb() as server:
        _log(tmp_path, items, **server.environment())
        before = len(server.requests)
        done = _read_online(server, "demo", tmp_path)
        asked = server.requests[before:]
        missing = _read_online(server, "nothing", tmp_path)
        assert server.unknown == []
    assert done.stdout.split() == ["3", "0.33", "0"], done.stderr
    assert asked.count("Runs") == 1
    assert "Run" not in asked
    assert "wandb:local/nothing: holds no runs" in missing.stderr


def test_offline_folders_are_read_without_a_server(tmp_path: Path) -> None:
    items = [{"record": plain(_small(i)), "finished": i < 2} for i in range(3)]
    _log(tmp_path, items, WANDB_MODE="offline")
    loaded = read([str(tmp_path)])
    assert sorted(loaded.frame["run_id"]) == ["run0000", "run0001", "run0002"]
    done = loaded.frame[loaded.frame["time.step_time_s"].notna()]
    assert sorted(done["time.step_time_s"]) == [0.1, 0.11]

    cut, damaged = sorted(tmp_path.glob("wandb/*/run-*.wandb"))[:2]
    cut.write_bytes(cut.read_bytes()[:-200])
    damaged.write_bytes(b"not a log")
    loaded = join_chunks([read_offline(tmp_path)])
    assert any("not a W&B run file" in problem.message for problem in loaded.problems)
    assert len(loaded.frame) + sum("not ended" in p.message for p in loaded.problems) == 2


def test_an_entry_over_several_blocks_is_put_together(tmp_path: Path) -> None:
    import struct

    path = tmp_path / "run-x.wandb"
    body = bytes(range(256)) * 300  # 76,800 bytes: three blocks
    data = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    left = body
    kind = 2
    while left:
        room = 32 * 1024 - len(data) % (32 * 1024) - 7
        part, left = left[:room], left[room:]
        data += struct.pack("<IHB", 0, len(part), kind if left else 4) + part
        kind = 3
    path.write_bytes(data)
    assert list(entries(path)) == [body]
