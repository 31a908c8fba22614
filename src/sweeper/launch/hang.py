"""A run that makes no progress: no new step and no new phase for too long."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sweeper.record import RecordError, read_state


class HangWatch:
    """Looks at a run's state file; ask it again and again.

    Args:
        run_dir: of a run that keeps its state there.
        limit_min: how long it may stay at one step of one phase; None = for ever.
    """

    def __init__(self, run_dir: Path, limit_min: float | None) -> None:
        self._run_dir = run_dir
        self._limit_s = None if limit_min is None else limit_min * 60
        self._sign: object = None
        self._since = time.monotonic()

    def hangs(self) -> bool:
        """Whether what was seen first, or last changed, is older than the limit."""
        if self._limit_s is None:
            return False
        sign: object = None
        with contextlib.suppress(RecordError):
            state = read_state(self._run_dir)
            sign = (state.attempt, state.phase, state.step) if state else None
        if sign != self._sign:
            self._sign, self._since = sign, time.monotonic()
        return time.monotonic() - self._since > self._limit_s
