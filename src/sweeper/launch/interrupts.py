"""Counting Ctrl-C, so that the first ends a sweep in order and the second at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """While the `with` block lasts, SIGINT and SIGTERM are counted and otherwise do nothing.

    Only the main thread can do this; elsewhere nothing changes.
    """

    def __init__(self, active: bool = True) -> None:
        self.count = 0
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> Interrupts:
        if self._active:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before.append((number, signal.signal(number, self._note)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from signal.signal

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
