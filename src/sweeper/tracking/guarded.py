"""The run's side of its tracker: quick calls that cannot fail, hang or slow the run.

The tracker itself lives in a process of its own (`sweeper.tracking.mirror`), fed through a pipe.
A thread would be simpler and is not enough: the libraries behind trackers take half a second of
interpreter time to import and a fraction of a millisecond for each row, hook into the interpreter's
exit, can deadlock where a data loader forks, and cannot be stopped once they hang. A process can.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import psutil

from sweeper.place import JOB_VARIABLE
from sweeper.record import Identity, Status, to_plain
from sweeper.tracking.base import NullTracker
from sweeper.tracking.channel import Channel

LOG_FILE = "tracker.log"  # what the tracker's process printed; removed where that is nothing

# While the run goes on, rows are handed over at this pace and the others wait for `finish`: a row
# can cost the tracker's process a millisecond of a core, which a run on CPUs would feel.
BATCH_S = 1.0
ROWS_PER_BATCH = 10

_NULL = f"{NullTracker.__module__}.{NullTracker.__qualname__}"
_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Method = Callable[Concatenate["Guarded", _Arguments], None]


def _never_fails(method: _Method[_Arguments]) -> _Method[_Arguments]:
    @functools.wraps(method)
    def call(self: Guarded, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if not self.active:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")

    return call


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Guarded:
    """A tracker whose calls never raise and return in bounded time.

    `start`, `log` and `summary` return at once. `settle` and `finish` wait, at most as long as they
    are told. A failure of the tracker becomes one line in `warnings`; after it there is silence.
    A run that dies without `finish` leaves nothing behind: the tracker's process sees the pipe
    close, finishes the mirrored run as killed, and ends.

    Args:
        node: the config's tracker node; None tracks nothing.
        warnings: list that a failure is appended to, the one the record keeps.
        finish_timeout_s: longest time that `finish` may take, seconds.

    Attributes:
        active: whether something is being tracked.
    """

    def __init__(
        self, node: Mapping[str, Any] | None, warnings: list[str], finish_timeout_s: float = 30.0
    ) -> None:
        self.active = node is not None and node.get("_target_") != _NULL
        self._node = dict(node or {})
        self._warnings = warnings
        self._finish_timeout_s = finish_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log_path: Path | None = None
        self._batch_at = 0.0
        self._asked = 0  # number of the last `settle`
        self._answered = 0
        self._finished = False

    @_never_fails
    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        """Start the tracker's process; it begins while the run goes on with its set-up."""
        self._log_path = run_dir.absolute() / LOG_FILE
        # The tracker may come from the user's own code: import from where this process does.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path}
        # Not the job's: what a killed run leaves behind is killed too, and this is to finish first.
        environment.pop(JOB_VARIABLE, None)
        with self._log_path.open("ab") as log:
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sweeper.tracking.mirror", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # signals to the run's group are the run's own business
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._channel = Channel(process.stdin.fileno(), process.stdout.fileno())
        self._channel.put(
            {
                "call": "start",
                "node": self._node,
                "identity": to_plain(identity),
                "config": to_plain(config),
                "run_dir": str(run_dir.absolute()),
            }
        )
        self._channel.write()

    @_never_fails
    def log(self, step: int, values: dict[str, float]) -> None:
        """Hand over one row; takes microseconds, whatever the tracker does.

        Where rows come faster than the tracker should take them they wait, and where very many
        wait, evenly spaced ones of them are given up; the run's own series has them all.
        """
        if self._channel is None:
            return
        row = {name: float(value) for name, value in values.items()}
        self._channel.put_row({"call": "log", "step": step, "values": row})
        now = time.monotonic()
        if now - self._batch_at > BATCH_S:
            self._batch_at = now
            self._channel.write(ROWS_PER_BATCH)
            self._handle(self._channel.read())

    @_never_fails
    def summary(self, values: dict[str, Any]) -> None:
        if self._channel is not None:
            self._channel.put({"call": "summary", "values": to_plain(values)})
            self._channel.write()

    def settle(self, timeout_s: float = 20.0) -> bool:
        """Wait until the tracker has dealt with every call so far, above all with its start.

        Called before the measured window, so that the tracker's start does not lie inside it.

        Returns:
            Whether it has; False after `timeout_s`, or where nothing is tracked (any more).
        """
        self._settle(time.monotonic() + timeout_s)
        return self.active and self._asked > 0 and self._answered == self._asked

    @_never_fails
    def _settle(self, deadline: float) -> None:
        if self._channel is None:
            return
        self._asked += 1
        self._channel.put({"call": "settle", "number": self._asked})
        while self.active and self._answered < self._asked and time.monotonic() < deadline:
            self._handle(self._channel.exchange(deadline))

    @_never_fails
    def finish(self, status: Status) -> None:
        """End the tracker; waits for it, then ends its process by force and warns."""
        process = self._process
        if self._channel is None or process is None:
            return
        deadline = time.monotonic() + self._finish_timeout_s
        self._channel.put({"call": "finish", "status": status.value})
        while self.active and not self._finished and time.monotonic() < deadline:
            self._handle(self._channel.exchange(deadline))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))
        if process.poll() is None:
            self.give_up(f"not finished after {self._finish_timeout_s:g} s, ended by force")
        self._close()

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "warning" in message:
                self._warn(message["warning"])
            elif "failed" in message:
                self.give_up(message["failed"])
            elif "settled" in message:
                self._answered = message["settled"]
            elif "finished" in message:
                self._finished = True
        if self.active and not self._finished and self._channel and self._channel.ended:
            self.give_up(f"its process ended; see {LOG_FILE}")

    def _warn(self, problem: str) -> None:
        message = f"tracker {self._node.get('_target_')}: {problem}"
        self._warnings.append(message)
        _log.warning("%s", message)

    def give_up(self, problem: str) -> None:
        """Warn, end the tracker's process, and do nothing from here on."""
        if self.active:
            self._warn(problem)
        with contextlib.suppress(Exception):
            self._close()

    def _close(self) -> None:
        self.active = False
        self._channel = None
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            # Its helpers may have sessions of their own, so a signal to the group is not enough.
            helpers: list[psutil.Process] = []
            with contextlib.suppress(psutil.Error):
                helpers = psutil.Process(process.pid).children(recursive=True)
            for helper in helpers:
                with contextlib.suppress(psutil.Error):
                    helper.kill()
            process.kill()
            process.wait(5)
            # A signal takes its time, and they are not ours to wait for.
            deadline = time.monotonic() + 1.0
            while any(map(_runs, helpers)) and time.monotonic() < deadline:
                time.sleep(0.005)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if self._log_path is not None and self._log_path.stat().st_size == 0:
            self._log_path.unlink()
