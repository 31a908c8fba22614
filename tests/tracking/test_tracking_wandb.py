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


def _sync(run_dir: Path, *options: str) -> None:
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *options, str(run_dir / "wandb")]
    done = subprocess.run(command, cwd=run_dir, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _assert_complete(run: LoggedRun, record: Record) -> None:
    """The server knows everything about the run that the tracker promises."""
    identity = record.identity
    assert (run.project, run.id, run.state) == ("demo", identity.run_id, "finished")
    names = ("displayName", "groupName", "jobType", "tags")
    assert [run.fields[name] for name in names] == [identity.variant, "compare", "train", ["a"]]
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


def test_offline_needs_no_network_and_syncs_later(
    server: LoopbackWandb,
    proxied: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    identity: Identity,
    run_dir: Path,
) -> None:
    for name in server.environment():
        monkeypatch.delenv(name)
    tracker, warnings = _start(_node("offline"), identity, run_dir)
    _log(tracker)
    _end(tracker, _record(identity))
    assert warnings == []
    assert proxied == []  # not even a look for W&B's server
    assert not (run_dir / "tracker.log").exists()  # it printed nothing
    assert [p.name[:12] for p in (run_dir / "wandb").glob("*run-*")] == ["offline-run-"]

    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    _sync(run_dir)
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
    statuses = {"one": Status.COMPLETED, "two": Status.OOM, "three": Status.FAILED}
    started = {
        name: _start(_node("online"), replace(identity, run_id=name), tmp_path / name)
        for name in statuses
    }
    for name, (tracker, _) in started.items():
        _log(tracker)
        _end(tracker, _record(replace(identity, run_id=name), statuses[name]))
    assert [warnings for _, warnings in started.values()] == [[], [], []]
    assert proxied == []
    runs = {name: server.runs[f"local/demo/{name}"] for name in statuses}
    _assert_complete(runs["one"], _record(replace(identity, run_id="one")))
    assert [run.state for run in runs.values()] == ["finished", "finished", "failed"]
    assert [run.summary["status"] for run in runs.values()] == ["completed", "oom", "failed"]

    table = _read_through_api("demo")
    assert {name: row["group"] for name, row in table.items()} == dict.fromkeys(runs, "compare")
    for name, row in table.items():
        expected = to_plain(_record(replace(identity, run_id=name), statuses[name]))
        assert to_plain(record_of(row["summary"])) == expected
        assert [step for step, _ in row["rows"]] == [0, 1, 2, 3, 4]


READ = """
import json, sys, wandb
runs = wandb.Api().runs(sys.argv[1], filters={"config.ckpt.value": "on"})
print(json.dumps({
    run.id: {
        "group": run.group,
        "summary": dict(run.summary_metrics),
        "rows": [(r["train/step"], r["train/loss"]) for r in run.scan_history()],
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


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_attempts_of_a_run_are_one_run(
    mode: str, server: LoopbackWandb, identity: Identity, run_dir: Path
) -> None:
    for first, count, status in ((0, 3, Status.KILLED), (3, 2, Status.COMPLETED)):
        tracker, warnings = _start(_node(mode), identity, run_dir)
        _log(tracker, first, count)
        _end(tracker, _record(identity, status))
        assert warnings == []
        time.sleep(1.0)  # W&B names a directory by the second it starts in
    if mode == "offline":
        _sync(run_dir)
    assert len(server.runs) == 1
    _assert_complete(server.runs["local/demo/a1b2c3d4e5"], _record(identity))


def test_without_a_key_or_a_server_it_writes_offline(
    server: LoopbackWandb, monkeypatch: pytest.MonkeyPatch, identity: Identity, tmp_path: Path
) -> None:
    with LoopbackWandb() as hanging, LoopbackWandb() as closed:
        hanging.hang()
        closed.close()
        cases = {
            "no key": ({"WANDB_API_KEY": ""}, "No API key"),
            "hanging": ({"WANDB_BASE_URL": hanging.url}, "deadline exceeded"),
            "closed": ({"WANDB_BASE_URL": closed.url}, "connection refused"),
        }
        started = {}
        for name, (change, _) in cases.items():
            with monkeypatch.context() as patch:
                for variable, value in change.items():
                    patch.setenv(variable, value)
                node = _node("online", timeout_s=2.0)
                started[name] = _start(node, identity, tmp_path / name)
        for name, (tracker, warnings) in started.items():
            assert tracker.settle(SETTLE_S), warnings
            _log(tracker)
            _end(tracker, _record(identity))
            (warning,) = warnings
            assert cases[name][1] in warning
            assert f"written offline, `wandb sync {tmp_path / name / 'wandb'}`" in warning
            (fragment,) = (tmp_path / name / "wandb").glob("*run-*")
            assert fragment.name.startswith("offline-run-")
    _sync(tmp_path / "no key")
    _assert_complete(server.runs["local/demo/a1b2c3d4e5"], _record(identity))


@pytest.mark.parametrize("end", ["hang", "close"])
def test_a_server_that_is_lost_costs_a_bounded_wait_and_no_data(
    end: str,
    server: LoopbackWandb,
    monkeypatch: pytest.MonkeyPatch,
    identity: Identity,
    run_dir: Path,
) -> None:
    with LoopbackWandb() as lost:
        with monkeypatch.context() as patch:
            patch.setenv("WANDB_BASE_URL", lost.url)
            tracker, warnings = _start(_node("online", timeout_s=2.0), identity, run_dir)
        assert tracker.settle(SETTLE_S), warnings
        assert list(lost.runs) == ["local/demo/a1b2c3d4e5"]
        getattr(lost, end)()
        _log(tracker)
        started = time.monotonic()
        _end(tracker, _record(identity))
        assert time.monotonic() - started < 60  # `finish_timeout_s` of the guard, and some
    assert len(warnings) == 1
    assert f"`wandb sync --no-skip-online {run_dir / 'wandb'}`" in warnings[0]
    _sync(run_dir, "--no-skip-online")  # to the server that answers
    _assert_complete(server.runs["local/demo/a1b2c3d4e5"], _record(identity))


@pytest.mark.parametrize(
    ("argument", "value"),
    [("mode", "offlin"), ("project", "a/b"), ("project", ""), ("timeout_s", 0)],
)
def test_wrong_arguments_are_found_before_a_run(argument: str, value: Any) -> None:
    with pytest.raises(UserError) as error:
        check_tracker({**_node("offline"), argument: value})
    assert error.value.key == f"tracker.{argument}"
