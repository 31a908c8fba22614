"""The command's end of the supervisor: start it, send it jobs, hear what became of them."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.launch.environment import clean, thread_variables
from sweeper.launch.errors import SupervisorError
from sweeper.launch.processes import SUPERVISOR_BOOT

# Nothing in the supervisor may call into CUDA; the ranks get their own values of these.
_NO_CUDA = {"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def import_path() -> list[str]:
    """This process's sys.path as another process must have it: the empty entry is this directory.

    This directory is at the end where it was not on the path, so that a person's package in it is
    found.
    """
    cwd = os.getcwd()
    path = [entry or cwd for entry in sys.path]
    return path if cwd in path else [*path, cwd]


class SupervisorProcess:
    """One running supervisor.

    Args:
        preload: modules it imports before it forks; none = every rank starts cold.
        environ: of the command; variables that libraries read when they are imported must be in it.
    """

    def __init__(self, preload: Sequence[str], environ: Mapping[str, str]) -> None:
        self.preload = tuple(preload)
        self.missing: list[str] = []  # modules that could not be imported
        self.threads = 1
        self.ready = False
        self.environ = clean(environ)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._received = b""
        self._channel, theirs = socket.socketpair()
        spec = {
            "channel": theirs.fileno(),
            "preload": list(preload),
            "sys_path": import_path(),
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR_BOOT, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**self.environ, **thread_variables(1), **_NO_CUDA},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._jobs: list[str] = []  # that were started
        self._close = weakref.finalize(self, _close, self._channel, self._process, self._jobs)

    @property
    def can_fork(self) -> bool:
        """Whether it may fork ranks; the locks of a second thread would stay locked in them."""
        return bool(self.preload) and self.threads == 1

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, **message: Any) -> None:
        """Raises SupervisorError where it has gone."""
        if message["op"] == "start":
            self._jobs.append(message["job"])
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise SupervisorError(self._last_words()) from error

    def receive(self, timeout_s: float | None) -> list[dict[str, Any]]:
        """Messages that came within the time (None = wait for one); `ready` is noted here.

        Raises:
            SupervisorError: it has gone.
        """
        readable, _, _ = select.select([self._channel], [], [], timeout_s)
        if not readable:
            return []
        try:
            data = self._channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            raise SupervisorError(self._last_words())
        *lines, self._received = (self._received + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if message["event"] == "ready":
                self.ready = True
                self.missing, self.threads = message["missing"], message["threads"]
        return [message for message in messages if message["event"] != "ready"]

    def close(self) -> None:
        """Let it go: it ends once its jobs have."""
        self._close()

    def _last_words(self) -> str:
        # pread: its writes and our reads share one file position.
        written = os.pread(self._log.fileno(), 1 << 16, 0).decode("utf-8", "replace")
        lines = written.splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"


def _close(channel: socket.socket, process: subprocess.Popen[bytes], jobs: list[str]) -> None:
    channel.close()
    if not jobs:  # it may still be importing
        process.terminate()
    # It ends by itself when it reads the end of the channel; wait only to leave no zombie.
    deadline = time.monotonic() + 0.5
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
