"""One rank, from the moment its process exists to its exit.

A rank takes on the command's environment, directory and arguments, then lets submitit load and call
what was submitted. An exception is described in the attempt's directory, printed once, and turned
into a non-zero exit code.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import json
import os
import random
import signal
import socket
import sys
import threading
import traceback
from types import FrameType
from typing import Any, NoReturn

import psutil
from submitit.core.submission import process_job

from sweeper.failure import describe, own_traceback, write_failure
from sweeper.launch.processes import CANNOT_WRITE, STACK_SIGNAL
from sweeper.place import JOB_VARIABLE, Place
from sweeper.record import State, now, write_state

_terminated = False


def to_argument(spec: dict[str, Any]) -> str:
    """The spec for a command line; the environment travels as the environment."""
    return json.dumps({**spec, "env": None})


def redirect(spec: dict[str, Any]) -> None:
    """Standard input from nowhere, output and errors into the rank's files."""
    for target, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, spec["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, spec["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, target)
        os.close(opened)


def main(spec: dict[str, Any]) -> NoReturn:
    """Run the rank. Never returns.

    Args:
        spec: `rank`, `folder` (submitit's), `cwd`, `argv`, `sys_path`, `env` (None in a cold start:
            it is there already), `stdout`, `stderr`, `cores` (empty = any), `threads`, and perhaps
            `patient` (SIGTERM does nothing).
    """
    code = 1
    place: Place | None = None
    try:
        _settle(spec)
        if "SWEEPER_RUN_DIR" in os.environ:
            place = Place.from_environment()
            _announce(place)
        process_job(spec["folder"])
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as error:  # everything a task can raise ends here, in words
        try:
            if place is not None:
                _, failure = describe(error, place.rank)
                write_failure(place.attempt_dir, failure)
            print("".join(own_traceback(error)), end="", file=sys.stderr)
        except OSError:  # a full or read-only disk
            code = CANNOT_WRITE
    _leave(code)


def _settle(spec: dict[str, Any]) -> None:
    if spec["env"] is not None:
        os.environ.clear()
        os.environ.update(spec["env"])
    os.chdir(spec["cwd"])
    sys.path[:] = spec["sys_path"]
    sys.argv[:] = spec["argv"]
    importlib.invalidate_caches()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # real text streams
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    # A patient rank is told of its end in another way; what it leaves is killed by its starter.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if spec.get("patient") else _terminate)
    if spec["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, spec["cores"])
    _reseed()
    torch = sys.modules.get("torch")
    if torch is not None:  # it read OMP_NUM_THREADS in the supervisor
        torch.set_num_threads(spec["threads"])


def _reseed() -> None:
    """A forked process has its parent's generators: every run would draw the same numbers."""
    random.seed()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.default_generator.seed()


def _announce(place: Place) -> None:
    if place.rank == 0:
        state = State(
            state="running",
            attempt=place.attempt,
            phase="start",
            pid=os.getpid(),
            pid_started=psutil.Process().create_time(),
            host=socket.gethostname(),
            job_id=os.environ.get(JOB_VARIABLE),
            heartbeat_at=now(),
        )
        write_state(place.run_dir, state)


def _terminate(number: int, frame: FrameType | None) -> None:
    """On SIGTERM unwind, so that files are closed; a process forked from here just ends."""
    global _terminated
    if os.getpid() != os.getsid(0):
        os._exit(128 + number)
    _terminated = True
    raise SystemExit(128 + number)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def _leave(code: int) -> NoReturn:
    """Exit as an interpreter does, but without taking all modules apart (0.8 s with torch)."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself calls
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        if _terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(code)
