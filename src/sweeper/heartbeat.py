"""Telling the outside world where a run is, without slowing it.

A thread rewrites state.json once a second from plain attributes that the training loop sets; the
loop itself never touches a file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

import psutil

from sweeper.fence import newest_attempt
from sweeper.place import Place
from sweeper.record import State, now, read_state, write_state


class Heartbeat:
    """Keeps the state of one run fresh while the `with` block lasts; rank 0 only.

    The loop assigns `heartbeat.state.step` and the like; assignments of attributes are atomic. Once
    a newer attempt of the run exists, the state is that one's and nothing is written any more.

    Args:
        place: of the run.
        total_steps: that it is to do.
        memory_bytes: what the live view shows as memory; asked by the thread, once a second.
        interval_s: seconds between two writes.

    Attributes:
        ends_as: the state that the end of the block leaves.
    """

    def __init__(
        self,
        place: Place,
        total_steps: int,
        memory_bytes: Callable[[], int | None] = lambda: None,
        interval_s: float = 1.0,
    ) -> None:
        self.ends_as = "finished"
        self._place = place
        self._active = place.rank == 0
        self._interval_s = interval_s
        self._memory_bytes = memory_bytes
        self._stop = threading.Event()
        earlier = read_state(place.run_dir) if self._active else None
        self.state = State(
            state="running",
            attempt=place.attempt,
            phase="setup",
            total_steps=total_steps,
            pid=os.getpid(),
            pid_started=psutil.Process().create_time(),
            host=socket.gethostname(),
            job_id=earlier.job_id if earlier else None,
        )
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        if self._active:
            self._write()
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._active:
            self._stop.set()
            self._thread.join()
            self.state.state = self.ends_as
            self._write()

    def phase(self, name: str) -> None:
        """Enter a phase, and say so at once: a run that dies in it cannot say so later."""
        self.state.phase = name
        if self._active:
            self._write()

    def _beat(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.state.memory_bytes = self._memory_bytes()
            self._write()

    def _write(self) -> None:
        self.state.heartbeat_at = now()
        # A full disk must not end a run that could still report what it measured.
        with contextlib.suppress(OSError):
            if newest_attempt(self._place) == self._place.attempt:
                write_state(self._place.run_dir, self.state)
