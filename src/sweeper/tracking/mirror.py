"""The process that a tracker lives in: `python -m sweeper.tracking.mirror <pid of the run>`.

Calls arrive as lines of JSON on standard input; warnings and answers go back on standard output.
It ends with the run: on `finish`, or when the run's process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from sweeper import instantiate
from sweeper.record import Identity, Status, from_plain
from sweeper.tracking.base import DegradedError, Tracker

# After the run's process is gone, this long for the tracker to finish.
GRACE_S = 10.0


def _end_with(parent: int) -> None:
    """Watch the run's process, so that a tracker that hangs does not outlive it for ever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(GRACE_S)
    os._exit(1)


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class Mirror:
    """Makes the calls that arrive, and reports at most one failure."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._tracker: Tracker | None = None
        self._warned = False

    def _answer(self, **message: Any) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()

    def serve(self, calls: BinaryIO) -> None:
        """Make one call a line, until `finish` or the end of the input."""
        status = Status.KILLED  # the run ends without a word
        for line in calls:
            message = json.loads(line)
            call = message.pop("call")
            if call == "finish":
                status = Status(message["status"])
                break
            if call == "settle":
                self._answer(settled=message["number"])
            elif not self._make(call, message):
                return
        if self._tracker is not None:
            self._make("finish", {"status": status})
        self._answer(finished=True)

    def _make(self, call: str, arguments: dict[str, Any]) -> bool:
        """Make one call; returns whether it makes sense to go on."""
        try:
            if call == "start":
                self._tracker = instantiate.build(arguments.pop("node"), "tracker")
                arguments["identity"] = from_plain(Identity, arguments["identity"])
                arguments["run_dir"] = Path(arguments["run_dir"])
            getattr(self._tracker, call)(**arguments)
        except DegradedError as news:
            self._answer(warning=str(news))
        except Exception as error:
            traceback.print_exc()
            problem = f"{call} failed: {_one_line(error)}"
            if call == "start":
                self._answer(failed=problem)
                return False
            if not self._warned:
                self._warned = True
                self._answer(warning=problem)
        return True


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # sent by a scheduler to every process of a job
    os.nice(5)  # the run comes first where cores are short
    parent = int(sys.argv[1])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    calls = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "w")
    # The tracker's libraries must neither read the calls nor print into the answers.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    with contextlib.suppress(BrokenPipeError):  # the run is gone
        Mirror(answers).serve(calls)


if __name__ == "__main__":
    main()
