"""A tracker may fail, hang or die: the run that it mirrors does not notice."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from misbehaving_trackers import read_diary

from sweeper.errors import UserError
from sweeper.record import Identity, Status, to_plain
from sweeper.tracking.channel import MOST_ROWS, Channel
from sweeper.tracking.factory import check_tracker, make_tracker

DIARY = {"_target_": "misbehaving_trackers.Diary"}


def _misbehaving(call: str, how: str) -> dict[str, str]:
    return {"_target_": "misbehaving_trackers.Misbehaving", "call": call, "how": how}


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that other tests of this session keep are not the tracker's."""
    found = frozenset(psutil.Process().children(recursive=True))
    monkeypatch.setattr(f"{__name__}.OTHERS", found)


OTHERS: frozenset[psutil.Process] = frozenset()


def _child_processes() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [child for child in found if child not in OTHERS and child.status() != "zombie"]


def _children() -> list[str]:
    return [" ".join(child.cmdline()) for child in _child_processes()]


def _eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def _mirror(
    node: dict[str, Any] | None, identity: Identity, run_dir: Path, **extra: Any
) -> list[str]:
    """A whole run's calls; returns the warnings."""
    warnings: list[str] = []
    tracker = make_tracker(node, warnings, **extra)
    tracker.start(identity, {"batch": {"size": 64}}, run_dir)
    for step in range(3):
        tracker.log(step, {"train/loss": 1.0 / (step + 1)})
    tracker.summary({"memory/peak_mib": 1.5})
    tracker.finish(Status.COMPLETED)
    return warnings


def test_the_tracker_gets_every_call_in_order(identity: Identity, run_dir: Path) -> None:
    node = {**DIARY, "greeting": "good day"}
    assert _mirror(node, identity, run_dir) == []
    start, *rest = read_diary(run_dir)
    config = {"batch": {"size": 64}}
    assert start == ["start", to_plain(identity), config, str(run_dir), "good day"]
    assert rest == [
        ["log", 0, {"train/loss": 1.0}],
        ["log", 1, {"train/loss": 0.5}],
        ["log", 2, {"train/loss": 1.0 / 3}],
        ["summary", {"memory/peak_mib": 1.5}],
        ["finish", "completed"],
    ]
    assert sorted(path.name for path in run_dir.iterdir()) == ["diary.jsonl"]
    assert _children() == []


def test_settle_waits_for_the_calls_so_far(identity: Identity, run_dir: Path) -> None:
    tracker = make_tracker(DIARY, [])
    tracker.start(identity, {}, run_dir)
    assert tracker.settle(60.0)
    assert [entry[0] for entry in read_diary(run_dir)] == ["start"]
    tracker.log(0, {"train/loss": 1.0})
    assert tracker.settle(60.0)
    assert [entry[0] for entry in read_diary(run_dir)] == ["start", "log"]
    tracker.finish(Status.OOM)
    assert read_diary(run_dir)[-1] == ["finish", "oom"]


@pytest.mark.parametrize("node", [None, {"_target_": "sweeper.tracking.base.NullTracker"}])
def test_no_tracker_means_no_process(
    node: dict[str, str] | None, identity: Identity, run_dir: Path
) -> None:
    assert _mirror(node, identity, run_dir) == []
    assert list(run_dir.iterdir()) == []


def test_only_rank_0_has_a_tracker(identity: Identity, run_dir: Path) -> None:
    assert _mirror(DIARY, identity, run_dir, rank=1) == []
    assert list(run_dir.iterdir()) == []


@pytest.mark.parametrize("call", ["log", "summary", "finish"])
def test_an_error_is_one_warning_and_the_other_calls_go_on(
    call: str, identity: Identity, run_dir: Path
) -> None:
    warnings = _mirror(_misbehaving(call, "raise"), identity, run_dir)
    assert warnings == [
        f"tracker misbehaving_trackers.Misbehaving: {call} failed: RuntimeError: no such luck"
    ]
    calls = [entry[0] for entry in read_diary(run_dir)]
    assert calls == ["start", "log", "log", "log", "summary", "finish"]
    assert "Traceback" in (run_dir / "tracker.log").read_text()


def test_a_tracker_that_cannot_start_is_called_no_more(identity: Identity, run_dir: Path) -> None:
    (warning,) = _mirror(_misbehaving("start", "raise"), identity, run_dir)
    assert "start failed: RuntimeError: no such luck" in warning
    assert [entry[0] for entry in read_diary(run_dir)] == ["start"]
    assert _children() == []


def test_a_tracker_that_does_less_says_so_and_goes_on(identity: Identity, run_dir: Path) -> None:
    (warning,) = _mirror(_misbehaving("start", "degrade"), identity, run_dir)
    assert warning.endswith(": written to paper instead")
    assert len(read_diary(run_dir)) == 6


@pytest.mark.parametrize("call", ["start", "log", "finish"])
def test_a_tracker_that_hangs_is_ended(call: str, identity: Identity, run_dir: Path) -> None:
    warnings: list[str] = []
    tracker = make_tracker(_misbehaving(call, "hang"), warnings, finish_timeout_s=1.0)
    tracker.start(identity, {}, run_dir)
    assert tracker.settle(1.0 if call == "start" else 60.0) == (call != "start")
    started = time.monotonic()
    for step in range(30_000):  # far more than the pipe holds
        tracker.log(step, {"train/loss": 1.0})
    tracker.finish(Status.COMPLETED)
    assert time.monotonic() - started < 60
    assert len(warnings) == 1
    assert "not finished after 1 s" in warnings[0]
    assert _children() == []  # nor the helper that the tracker had started
    assert not any(p.info["cmdline"] == ["sleep", "600"] for p in psutil.process_iter(["cmdline"]))


@pytest.mark.parametrize("call", ["start", "log", "finish"])
def test_a_tracker_that_dies_is_one_warning(call: str, identity: Identity, run_dir: Path) -> None:
    (warning,) = _mirror(_misbehaving(call, "die"), identity, run_dir)
    assert "its process ended" in warning
    assert _children() == []


def test_calls_after_the_tracker_died_are_silent(identity: Identity, run_dir: Path) -> None:
    warnings: list[str] = []
    tracker = make_tracker(_misbehaving("start", "die"), warnings)
    tracker.start(identity, {}, run_dir)
    assert not tracker.settle(60.0)
    assert len(warnings) == 1
    tracker.log(0, {"train/loss": 1.0})
    tracker.summary({"a": 1})
    tracker.finish(Status.COMPLETED)
    assert len(warnings) == 1


def test_what_a_tracker_prints_is_kept_apart(identity: Identity, run_dir: Path) -> None:
    assert _mirror(_misbehaving("start", "chat"), identity, run_dir) == []
    assert (run_dir / "tracker.log").read_text() == "hello \n"
    assert len(read_diary(run_dir)) == 6


def test_a_directory_that_cannot_be_written_is_one_warning(
    identity: Identity, tmp_path: Path
) -> None:
    (warning,) = _mirror(DIARY, identity, tmp_path / "missing")
    assert "FileNotFoundError" in warning


def test_signals_to_all_processes_of_a_job_do_not_end_it(identity: Identity, run_dir: Path) -> None:
    warnings: list[str] = []
    tracker = make_tracker(DIARY, warnings)
    tracker.start(identity, {}, run_dir)
    assert tracker.settle(60.0)
    (child,) = _child_processes()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        child.send_signal(number)
    tracker.finish(Status.CANCELLED)
    assert warnings == []
    assert read_diary(run_dir)[-1] == ["finish", "cancelled"]


def test_forks_of_the_run_leave_the_tracker_alone(identity: Identity, run_dir: Path) -> None:
    warnings: list[str] = []
    tracker = make_tracker(DIARY, warnings)
    tracker.start(identity, {}, run_dir)
    with multiprocessing.get_context("fork").Pool(2) as workers:  # as a data loader's
        for step in range(20):
            tracker.log(step, {"train/loss": float(workers.apply(abs, (-step,)))})
        tracker.finish(Status.COMPLETED)
    assert warnings == []
    assert [entry[1] for entry in read_diary(run_dir) if entry[0] == "log"] == list(range(20))


RUN = """
import json, os, signal, sys
from pathlib import Path
from sweeper.record import Identity
from sweeper.tracking.factory import make_tracker
tracker = make_tracker(json.loads(sys.argv[1]), [])
identity = Identity(sweep="s", run_id="r", config_id="c")
tracker.start(identity, {}, Path(sys.argv[2]))
tracker.log(0, {"train/loss": 1.0})
tracker.settle(60.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_is_killed_is_finished_as_killed(run_dir: Path) -> None:
    command = [sys.executable, "-c", RUN, json.dumps(DIARY), str(run_dir)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, timeout=60).returncode == -signal.SIGKILL
    assert _eventually(lambda: read_diary(run_dir)[-1] == ["finish", "killed"])


def test_the_check_names_what_is_wrong() -> None:
    check_tracker(None)
    check_tracker(DIARY)
    for node, key in (
        ({"_target_": "misbehaving_trackers.Missing"}, "tracker._target_"),
        ({**DIARY, "greting": "hi"}, "tracker.greting"),
        (_misbehaving("start", "raise") | {"how": None, "extra": 1}, "tracker.extra"),
    ):
        with pytest.raises(UserError) as error:
            check_tracker(node)
        assert error.value.key == key


def test_rows_that_nobody_takes_are_thinned_evenly() -> None:
    read_fd, write_fd = os.pipe()
    answers_fd, other_fd = os.pipe()
    channel = Channel(write_fd, answers_fd)
    channel.put({"call": "start"})
    for step in range(100_000):
        channel.put_row({"step": step})
        channel.write()
    channel.put({"call": "finish"})
    received: list[dict[str, Any]] = []
    rest = b""
    while channel.unsent:
        channel.write()
        *lines, rest = (rest + os.read(read_fd, 1 << 20)).split(b"\n")
        received += map(json.loads, lines)
    assert received[0] == {"call": "start"}
    assert received[-1] == {"call": "finish"}
    steps = [message["step"] for message in received[1:-1]]
    assert steps == sorted(steps)
    assert len(steps) <= MOST_ROWS + 10_000  # those in the pipe beside those that waited
    assert steps[-1] > 99_000
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 32
    for fd in (read_fd, write_fd, answers_fd, other_fd):
        os.close(fd)
