"""The process that starts ranks and sees them end.

It imports the slow libraries once and forks a rank in milliseconds (warm), or executes a fresh
interpreter for it (cold). It owns the rules that must hold even when the command that started it is
gone: a run ends with the first of its ranks that fails, and at its time limit. It runs in a session
of its own, so that neither Ctrl-C nor a closed terminal reaches it or its ranks; when the command
dies, it sees its runs to their end and then ends itself.

It must stay a process of one thread that has never called into CUDA: both would break its children.

Messages are lines of JSON on a socket. From the command:

    {"op": "start", "job", "warm", "timeout_s", "attempt_dir", "info", "ranks": [rank spec, ...]}
    {"op": "cancel", "job", "reason", "now"}

To the command:

    {"event": "ready", "missing": [module, ...], "threads"}
    {"event": "started", "job", "ranks": [{"rank", "pid", "started"}]}
    {"event": "ended", "job", "reason", "exits": [{"rank", "code", "at", "sent", "oom"}]}
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil

from sweeper.launch import rank as rank_process
from sweeper.launch.job_end import JobEnd
from sweeper.launch.oom import OomWatch
from sweeper.launch.processes import NOT_STARTED, RANK_BOOT


def _preload(modules: list[str]) -> list[str]:
    """Import modules; returns those that could not be imported."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module raises, its users will see it themselves
            print(f"preload {name}: {type(error).__name__}: {error}", file=sys.stderr)
            missing.append(name)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, these objects in the children
    return missing


class _Forked(BaseException):
    """Unwinds the supervisor's stack in a forked rank, so that its tracebacks are its own."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__()
        self.spec = spec


class Supervisor:
    """Serves one command over `channel` until that has gone and all jobs have ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel: socket.socket | None = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._wakeup, alarm = socket.socketpair()
        self._alarm = alarm
        for end in (self._wakeup, alarm):
            end.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._received = b""
        self._jobs: dict[str, JobEnd] = {}
        self._job_of_pid: dict[int, str] = {}
        self._oom = OomWatch()

    def serve(self) -> None:
        while self._channel is not None or self._jobs:
            due = [job.next_due for job in self._jobs.values() if job.next_due is not None]
            timeout = max(0.0, min(due) - time.monotonic()) if due else None
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        while self._wakeup.recv(4096):
                            pass
                else:
                    self._receive()
            self._reap()
            for job in list(self._jobs.values()):
                job.act(time.monotonic())

    def send(self, **message: Any) -> None:
        if self._channel is not None:
            try:
                self._channel.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None

    def _receive(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["op"] == "start":
                self._start(message)
            elif message["job"] in self._jobs:
                self._jobs[message["job"]].end(message["reason"], now=message["now"])

    def _start(self, message: dict[str, Any]) -> None:
        job = JobEnd(message["job"], message["timeout_s"])
        job.attempt_dir = Path(message["attempt_dir"]) if message["attempt_dir"] else None
        started = []
        for spec in message["ranks"]:
            try:
                pid = self._fork(spec, warm=message["warm"])
            except OSError as error:  # no room for another process
                print(f"cannot start rank {spec['rank']}: {error}", file=sys.stderr)
                job.not_started(spec["rank"], NOT_STARTED)
                break
            job.add(spec["rank"], pid)
            self._job_of_pid[pid] = job.job
            with contextlib.suppress(psutil.Error):
                born = psutil.Process(pid).create_time()
                started.append({"rank": spec["rank"], "pid": pid, "started": born})
        self._jobs[job.job] = job
        job.write("ranks.json", {**message["info"], "ranks": started})
        self.send(event="started", job=job.job, ranks=started)
        self._retire(job)

    def _fork(self, spec: dict[str, Any], *, warm: bool) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become_rank(spec, warm=warm)
        return pid

    def _become_rank(self, spec: dict[str, Any], *, warm: bool) -> NoReturn:
        forked = False
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            for end in (self._channel, self._wakeup, self._alarm):
                if end is not None:
                    end.close()
            rank_process.redirect(spec)
            if warm:
                forked = True
                raise _Forked(spec)
            command = [sys.executable, "-c", RANK_BOOT, rank_process.to_argument(spec)]
            os.execve(command[0], command, spec["env"])
        finally:
            if not forked:
                os._exit(NOT_STARTED)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # While the rank is a zombie its number cannot be given away: end what it left behind.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            pid, status = os.waitpid(ended.si_pid, 0)
            name = self._job_of_pid.pop(pid, None)
            if name is None:
                continue
            job = self._jobs[name]
            code = os.waitstatus_to_exitcode(status)
            killed = code == -signal.SIGKILL and not job.was_killed(pid)
            job.rank_ended(pid, code, oom=killed and self._oom.was_it())
            self._retire(job)

    def _retire(self, job: JobEnd) -> None:
        if job.over:
            del self._jobs[job.job]
            job.write("exits.json", {"reason": job.reason, "exits": job.exits})
            self.send(event="ended", job=job.job, reason=job.reason, exits=job.exits)


def main(spec: dict[str, Any]) -> None:
    """Entry of the process: preload, say so, serve.

    Args:
        spec: `channel` (an inherited file descriptor), `preload`, `sys_path`.
    """
    channel = socket.socket(fileno=spec["channel"])
    channel.set_inheritable(False)
    supervisor = Supervisor(channel)
    missing = _preload(spec["preload"])
    supervisor.send(event="ready", missing=missing, threads=psutil.Process().num_threads())
    try:
        supervisor.serve()
    except _Forked as forked:
        rank = forked.spec
    else:
        sys.stderr.flush()
        os._exit(0)  # taking apart what was preloaded would cost most of a second
    rank_process.main(rank)
