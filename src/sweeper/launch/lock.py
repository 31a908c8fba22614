"""One command at a time on a sweep directory."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from types import TracebackType

from sweeper.errors import UserError
from sweeper.record import now

LOCK_FILE = ".lock"


class SweepLock:
    """Holds the directory while the `with` block lasts; the kernel lets go of it if we die.

    Raises:
        UserError: another command holds it, or the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_FILE
        self._file: int | None = None

    def __enter__(self) -> SweepLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                "hydra.sweep.dir",
                f"{self._path.parent} cannot be written: {error.strerror}",
                "choose a writable directory",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder()
            os.close(self._file)
            raise UserError(
                "sweep.name",
                f"another command works on {self._path.parent}{holder}",
                f"wait for it, or watch it: python -m sweeper.status {self._path.parent}",
            ) from error
        me = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(me).encode(), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.close(self._file)

    def _holder(self) -> str:
        try:
            who = json.loads(self._path.read_text("utf-8"))
            return f" (process {who['pid']} on {who['host']} since {who['since'][:19]})"
        except (OSError, ValueError, KeyError):
            return ""
