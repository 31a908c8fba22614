"""W&B views and logging, against the real client and a server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis_records import record, write_sweep
from loopback_wandb import LoopbackWandb

from analysis.dashboard import keys
from analysis.dashboard.command import project_of
from analysis.wandb_source import MirroredRun, to_chunk
from sweeper.errors import UserError
from sweeper.record import Loss, Memory, MemoryPeaks, Time
from sweeper.tracking.summary import summary_of
from sweeper.tracking.wandb import STEP, flat_config

ROOT = Path(__file__).parents[2]

VIEWS = {
    "Bar Chart",
    "Scatter Plot",
    "Parallel Coordinates Plot",
    "Run History Line Plot",
    "Run Comparer",
}

pytestmark = pytest.mark.usefixtures("_no_wandb_account")


@pytest.fixture
def server() -> Iterator[LoopbackWandb]:
    """A server whose client must ask nothing unknown."""
    with LoopbackWandb() as server:
        yield server
        assert server.unknown == []
        assert server.errors == []


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    records = [record(), record("amp", memory_mib=60, step_s=0.08), record(ckpt="on")]
    return write_sweep(tmp_path / "sweep", records)


def _dashboard(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: W&B's settings are global."""
    return subprocess.run(
        [sys.executable, "-m", "analysis", "dashboard", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def _need_workspaces() -> None:
    if os.environ.get("CI") != "true":
        pytest.importorskip("wandb_workspaces", reason="the extra `dashboard` is not installed")


def _found(tree: Any, name: str) -> list[Any]:
    """Every value of a key, at any depth."""
    if isinstance(tree, dict):
        below = [value for item in tree.values() for value in _found(item, name)]
        return [*([tree[name]] if name in tree else []), *below]
    return [v for item in tree for v in _found(item, name)] if isinstance(tree, list) else []


def test_keys_are_those_of_the_tracker() -> None:
    one = record()
    one.memory = Memory(warm=MemoryPeaks(peak_allocated_bytes=2**20))
    one.time = Time(step_time_s=0.1, samples_per_s=320.0)
    one.loss = Loss(validation_last=1.0)
    summary = summary_of(one)
    for measure in (keys.PEAK, keys.STEP_TIME, keys.THROUGHPUT, keys.LOSS):
        assert measure.key in summary
    # The unit in a heading is the one that the tracker converts to: 1 MiB, 100 ms.
    assert summary[keys.PEAK.key] == 1.0
    assert keys.PEAK.unit == "MiB"
    assert summary[keys.STEP_TIME.key] == pytest.approx(100.0)
    assert keys.STEP_TIME.unit == "ms"
    assert keys.STATUS in summary
    assert keys.STEP == STEP
    flat = flat_config(one.identity, one.config)
    assert {keys.VARIANT, *keys.TECHNIQUES} <= set(flat)


def test_the_specification_is_made_without_a_server() -> None:
    _need_workspaces()
    # A server that cannot be: any question would end in an error.
    done = _dashboard("wandb:team/demo", "--offline-spec", WANDB_BASE_URL="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    specs = json.loads(done.stdout)
    for view in ("workspace", "report"):
        assert set(_found(specs[view], "viewType")) >= VIEWS
        metrics = [m for found in _found(specs[view], "metrics") for m in found]
        assert {keys.PEAK.key, keys.STEP_TIME.key, keys.TRAIN_LOSS} <= set(metrics)
        assert f"{keys.VARIANT}.value" in _found(specs[view], "groupBy")
        assert keys.STEP in _found(specs[view], "xAxis")
        scatter = f"summary:{keys.PEAK.key}"
        assert scatter in _found(specs[view], "yAxis")
        accessors = _found(specs[view], "accessor")
        assert {f"config:{name}.value" for name in keys.TECHNIQUES} <= set(accessors)


def test_workspace_and_report_are_saved(server: LoopbackWandb) -> None:
    _need_workspaces()
    done = _dashboard("wandb:local/demo", "--group", "sweep-1", **server.environment())
    assert done.returncode == 0, done.stderr
    views = list(server.store.views.values())
    assert {view["type"] for view in views} == {"project-view", "runs"}
    assert all(view["project"]["name"] == "demo" for view in views)
    assert all("sweep-1" in view["spec"] for view in views)
    for view in views:
        assert set(_found(json.loads(view["spec"]), "viewType")) >= VIEWS
    assert len(done.stdout.split()) == 2


def test_tables_and_figures_go_to_the_sweeps_group(server: LoopbackWandb, sweep: Path) -> None:
    done = _dashboard("wandb:local/demo", "--log", str(sweep), "--online", **server.environment())
    assert done.returncode == 0, done.stderr
    (run,) = server.runs.values()
    assert (run.project, run.fields["groupName"]) == ("demo", "s")
    assert run.fields["jobType"] == keys.REPORT_JOB
    assert run.state == "finished"
    logged = {key for row in run.history for key in row}
    assert {"tables/runs", "tables/precision", "figures/tradeoff"} <= logged
    assert any(name.startswith("media/images/figures/tradeoff") for name in run.files)
    name = next(n for n in run.files if n.startswith("media/table/tables/runs"))
    table = json.loads(run.files[name])
    at = table["columns"].index("peak_bytes")
    assert sorted(row[at] for row in table["data"]) == [60 * 2**20, 100 * 2**20, 100 * 2**20]


def test_a_run_of_tables_is_not_taken_for_a_run_of_the_sweep() -> None:
    of_sweep = MirroredRun("a", "s", "finished", {"precision": "amp"}, {})
    of_tables = MirroredRun("b", "s", "finished", {"job": keys.REPORT_JOB, "sweep": "s"}, {})
    assert to_chunk([of_sweep, of_tables], "wandb:local/demo").length == 1


def test_logging_again_continues_the_same_run(server: LoopbackWandb, sweep: Path) -> None:
    for _ in range(2):
        done = _dashboard(
            "wandb:local/demo", "--log", str(sweep), "--online", **server.environment()
        )
        assert done.returncode == 0, done.stderr
    assert len(server.runs) == 1


def test_offline_files_are_sent_later(server: LoopbackWandb, sweep: Path) -> None:
    done = _dashboard("--log", str(sweep), **server.environment())
    assert done.returncode == 0, done.stderr
    assert server.requests == []
    directory = done.stdout.splitlines()[0]
    sent = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--yes", directory],
        cwd=sweep,
        env={**os.environ, **server.environment(), "WANDB_ERROR_REPORTING": "false"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert sent.returncode == 0, sent.stderr
    (run,) = server.runs.values()
    assert run.fields["groupName"] == "s"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing to do"),
        (("wandb:demo",), "wandb:entity/project"),
        (("demo",), "wandb:entity/project"),
        (("--log", "no-such-directory"), "is not a directory"),
    ],
)
def test_wrong_input_gets_one_message(arguments: tuple[str, ...], told: str) -> None:
    done = _dashboard(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_gets_one_message() -> None:
    _need_workspaces()
    nowhere = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    done = _dashboard("wandb:local/demo", **nowhere)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_project_is_an_entity_and_a_name() -> None:
    assert project_of("wandb:team/demo") == ("team", "demo")
    with pytest.raises(UserError):
        project_of("wandb:team/demo/run")
