"""The W&B tracker against the real client and a server on loopback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback_store import LoggedRun
from loopback_wandb import LoopbackWandb

from sweeper.errors import UserError
from sweeper.record import Identity, Loss, Memory, MemoryPeaks, Record, Status, Time, to_plain
from sweeper.tracking.factory import check_tracker, make_tracker
from sweeper.tracking.guarded import Guarded
from sweeper.tracking.summary import record_of, summary_of

CONFIG = {"mode": "train", "batch": {"size": 64}, "precision": {"name": "amp", "autocast": True}}
SETTLE_S = 90.0


def _node(mode: str, **arguments: Any) -> dict[str, Any]:
    target = "sweeper.tracking.wandb.WandbTracker"
    return {"_target_": target, "project": "demo", "mode": mode, "tags": ["a"], **arguments}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackWandb]:
    """A server that the client is pointed to; its client must ask nothing unknown."""
    with LoopbackWandb() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
        assert server.unknown == []
        assert server.errors == []


def _record(identity: Identity, status: Status = Status.COMPLETED) -> Record:
    return Record(
        identity=identity,
        status=status,
        config=CONFIG,
        memory=Memory(warm=MemoryPeaks(peak_tensor_bytes=3 * 2**20)),
        time=Time(step_time_s=0.1 + 0.2, samples_per_s=320.0),
        loss=Loss(train_last=1 / 3, validation_last=math.nan),
        warnings=["a “quoted” line\nand one more"],
    )


def _start(node: dict[str, Any], identity: Identity, run_dir: Path) -> tuple[Guarded, list[str]]:
    warnings: list[str] = []
    run_dir.mkdir(parents=True, exist_ok=True)
    tracker = make_tracker(node, warnings)
    tracker.start(identity, CONFIG, run_dir)
    return tracker, warnings


def _log(tracker: Guarded, first: int = 0, count: int = 5) -> None:
    for step in range(first, first + count):
        tracker.log(step, {"train/loss": 1.0 / (step + 1), "lr": 0.1})


def _end(tracker: Guarded, record: Record) -> None:
    tracker.summary(summary_of(record))
    tracker.finish(record.status)


def _two_attempts(node: dict[str, Any], identity: Identity, run_dir: Path) -> None:
    """A run that is killed after three steps and completed by its next attempt."""
    for first, count, status in ((0, 3, Status.KILLED), (3, 2, Status.COMPLETED)):
        tracker, warnings = _start(node, identity, run_dir)
        _log(tracker, first, count)
        _end(tracker, _record(identity, status))
        assert warnings == []
        if status is Status.KILLED:
            time.sleep(1.0)  # W&B names a directory by the second it starts in


def _sync(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, arguments)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _assert_complete(run: LoggedRun, record: Record) -> None:
    """The server knows everything about the run that the tracker promises."""
    identity = record.identity
    assert (run.project, run.id, run.state) == ("demo", identity.run_id, "finished")
    names = ("displayName", "groupName", "jobType", "tags")
    assert [run.fields[name] for name in names] == [identity.variant, "compare", "train", ["a"]]
    metadata = json.loads(run.files["wandb-metadata.json"])
    assert [metadata["program"], *metadata["args"]] == identity.command.split()[1:]
    flat = {"precision": "amp", "ckpt": "on", "gpus": 4, "variant": identity.variant, "repeat": 0}
    assert {key: run.config[key] for key in flat} == flat
    assert run.config["config_id"] == identity.config_id
    assert run.config["command"] == identity.command
    assert run.config["config"] == CONFIG
    assert [row["train/step"] for row in run.history] == [0, 1, 2, 3, 4]
    assert [row["train/loss"] for row in run.history] == [1.0 / (step + 1) for step in range(5)]
    assert run.summary["status"] == "completed"
    assert run.summary["memory/peak_mib"] == 3.0
    assert run.summary["perf/step_time_ms"] == pytest.approx(300.0)
    assert run.summary["perf/samples_per_s"] == 320.0
    assert to_plain(record_of(run.summary)) == to_plain(record)


def test_offline_needs_no_network_and_syncs_attempts_as_one_run(
    server: LoopbackWandb,
    proxied: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    identity: Identity,
    run_dir: Path,
) -> None:
    with monkeypatch.context() as patch:
        for name in server.environment():
            patch.delenv(name)
        _two_attempts(_node("offline"), identity, run_dir)
    assert proxied == []  # not even a look for W&B's server
    assert not (run_dir / "tracker.log").exists()  # nothing was printed
    fragments = [path.name for path in (run_dir / "wandb").glob("*run-*")]
    assert len(fragments) == 2
    assert all(name.startswith("offline-run-") for name in fragments)
    assert server.requests == []

    _sync(run_dir / "wandb")
    assert len(server.runs) == 1
    _assert_complete(server.runs["local/demo/a1b2c3d4e5"], _record(identity))


def test_the_proxy_would_see_a_client_that_looks_for_its_server(
    proxied: list[bytes], tmp_path: Path
) -> None:
    """What the test above relies on: the client by itself does look, even when offline."""
    code = "import wandb\nwith wandb.init(mode='offline') as run: run.log({'a': 1})"
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=tmp_path, timeout=60, check=True, capture_output=True)
    assert proxied, "the client no longer does: WANDB_MODE need not be set before its import"


def test_online_runs_of_a_sweep_side_by_side(
    server: LoopbackWandb, proxied: list[bytes], identity: Identity, tmp_path: Path
) -> None:
    good, bad = replace(identity, run_id="good"), replace(identity, run_id="bad")
    tracker, warnings = _start(_node("online"), bad, tmp_path / "bad")
    _log(tracker)
    _two_attempts(_node("online"), good, tmp_path / "good")
    _end(tracker, _record(bad, Status.FAILED))
    assert warnings == []
    assert proxied == []
    assert sorted(server.runs) == ["local/demo/bad", "local/demo/good"]
    _assert_complete(server.runs["local/demo/good"], _record(good))
    assert server.runs["local/demo/bad"].state == "failed"
    assert server.runs["local/demo/bad"].summary["status"] == "failed"

    table = _read_through_api("demo")
    for run, status in ((good, Status.COMPLETED), (bad, Status.FAILED)):
        row = table.pop(run.run_id)
        assert row["group"] == "compare"
        assert to_plain(record_of(row["summary"])) == to_plain(_record(run, status))
        assert row["rows"] == [[step, 1.0 / (step + 1)] for step in range(5)]
        assert row["sampled"] == [0.1] * 5
        assert "config.yaml" in row["files"]
    assert table == {}
    assert server.pages == 1  # the records came with the listing


READ = """
import json, sys, wandb
runs = wandb.Api().runs(sys.argv[1], filters={"config.ckpt.value": "on"}, order="+created_at")
print(json.dumps({
    run.id: {
        "group": run.group,
        "summary": dict(run.summary_metrics),
        "rows": [(row["train/step"], row["train/loss"]) for row in run.scan_history()],
        "sampled": [row["lr"] for row in run.history(keys=["lr"], pandas=False)],
        "files": [file.name for file in run.files()],
    }
    for run in runs
}))
"""


def _read_through_api(project: str) -> dict[str, Any]:
    command = [sys.executable, "-c", READ, f"local/{project}"]
    environment = {**os.environ, "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
    done = subprocess.run(command, env=environment, timeout=90, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads(done.stdout)
    return table


def test_without_a_key_or_a_server_it_writes_offline(
    server: LoopbackWandb, monkeypatch: pytest.MonkeyPatch, identity: Identity, tmp_path: Path
) -> None:
    with LoopbackWandb() as hanging, LoopbackWandb() as closed:
        hanging.hang()
        closed.close()
        changes = {
            "no key": ("WANDB_API_KEY", ""),
            "hanging": ("WANDB_BASE_URL", hanging.url),
            "closed": ("WANDB_BASE_URL", closed.url),
        }
        started = {}
        for name, (variable, value) in changes.items():
            with monkeypatch.context() as patch:
                patch.setenv(variable, value)
                node = _node("online", timeout_s=2.0)
                started[name] = _start(node, identity, tmp_path / name)
        for name, (tracker, warnings) in started.items():
            assert tracker.settle(SETTLE_S), warnings
            _log(tracker)
            _end(tracker, _record(identity))
            (warning,) = warnings
            directory = tmp_path / name / "wandb"
            assert f"written offline, `wandb sync {directory}` sends it" in warning
            (fragment,) = directory.glob("*run-*")  # none is left of the start that failed
            assert fragment.name.startswith("offline-run-")
            assert next(fragment.glob("*.wandb")).stat().st_size > 0
    assert "No API key" in started["no key"][1][0]
    assert server.requests == []


def test_a_server_that_is_lost_costs_a_bounded_wait_and_no_data(
    server: LoopbackWandb, monkeypatch: pytest.MonkeyPatch, identity: Identity, tmp_path: Path
) -> None:
    started = {}
    for end in ("hang", "close"):
        lost = LoopbackWandb()
        with monkeypatch.context() as patch:
            patch.setenv("WANDB_BASE_URL", lost.url)
            run = replace(identity, run_id=end)
            started[end] = lost, run, *_start(_node("online", timeout_s=2.0), run, tmp_path / end)
    for end, (lost, run, tracker, warnings) in started.items():
        assert tracker.settle(SETTLE_S), warnings
        assert list(lost.runs) == [f"local/demo/{end}"]
        getattr(lost, end)()
        _log(tracker)
        began = time.monotonic()
        _end(tracker, _record(run))
        assert time.monotonic() - began < 60  # the guard's 30 s, and some for a busy machine
        (warning,) = warnings
        command = f"`wandb sync --no-skip-online {tmp_path / end / 'wandb'}`"
        assert f"{command} sends the rest" in warning
        lost.close()
    _sync("--no-skip-online", tmp_path / "hang" / "wandb", tmp_path / "close" / "wandb")
    for end, (_, run, _, _) in started.items():
        _assert_complete(server.runs[f"local/demo/{end}"], _record(run))


@pytest.mark.parametrize(
    ("argument", "value"),
    [("mode", "offlin"), ("project", "a/b"), ("project", ""), ("timeout_s", 0)],
)
def test_wrong_arguments_are_found_before_a_run(argument: str, value: Any) -> None:
    with pytest.raises(UserError) as error:
        check_tracker({**_node("offline"), argument: value})
    assert error.value.key == f"tracker.{argument}"
