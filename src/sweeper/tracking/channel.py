"""Lines of JSON to and from another process, without ever blocking on it."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections import deque
from typing import Any

# Rows wait here while the other side is slow; beyond this number, every second one is given up.
MOST_ROWS = 5_000

_encode = json.JSONEncoder(default=str).encode  # what JSON does not know becomes text


class Channel:
    """Two pipes and what waits to go through them.

    Args:
        write_fd: where lines go.
        read_fd: where the other side's lines come from.

    Attributes:
        ended: the other side has closed its end.
    """

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd = write_fd
        self._read_fd = read_fd
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)
        self._waiting: deque[tuple[int, bytes]] = deque()  # (number of the row or 0, line)
        self._rows = 0
        self._stride = 1  # rows with a number divisible by it are kept
        self._partly_written = b""
        self._partly_read = b""
        self.ended = False

    def put(self, message: dict[str, Any]) -> None:
        """Queue a message; it is sent by `write` or `exchange`."""
        self._waiting.append((0, _encode(message).encode() + b"\n"))

    def put_row(self, message: dict[str, Any]) -> None:
        """Queue a message that may be given up where more of them come than can be sent.

        Those given up lie evenly between those kept: a curve loses resolution, not a part.
        """
        number = self._rows
        self._rows += 1
        if number % self._stride:
            return
        self._waiting.append((number, _encode(message).encode() + b"\n"))
        if len(self._waiting) > MOST_ROWS:
            self._stride *= 2
            self._waiting = deque(item for item in self._waiting if item[0] % self._stride == 0)

    @property
    def unsent(self) -> bool:
        return bool(self._waiting or self._partly_written)

    def write(self, most: float = math.inf) -> None:
        """Send as much as the pipe takes now, `most` messages at most."""
        while self.unsent and not self.ended:
            if not self._partly_written:
                if most <= 0:
                    return
                most -= 1
                _, self._partly_written = self._waiting.popleft()
            try:
                count = os.write(self._write_fd, self._partly_written)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.ended = True
                return
            self._partly_written = self._partly_written[count:]
        self._stride = 1

    def read(self) -> list[dict[str, Any]]:
        """The messages that have arrived."""
        while True:
            try:
                data = os.read(self._read_fd, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self.ended = True
                break
            self._partly_read += data
        *lines, self._partly_read = self._partly_read.split(b"\n")
        return [json.loads(line) for line in lines]

    def exchange(self, deadline: float) -> list[dict[str, Any]]:
        """Send what waits and wait for a message, until `deadline` of `time.monotonic`.

        Returns:
            What arrived; empty when the pipe took more, the time is up or the other side has ended.
        """
        self.write()
        wait_s = max(deadline - time.monotonic(), 0.0)
        writable = [self._write_fd] if self.unsent and not self.ended else []
        select.select([self._read_fd], writable, [], wait_s)
        return self.read()
