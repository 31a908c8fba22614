"""What a tracker is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from sweeper.record import Identity, Status


class DegradedError(Exception):
    """Raised by a tracker's call that did its work in a lesser way than asked; it goes on.

    The message says what it does instead.
    """


class Tracker(Protocol):
    """Where a run is mirrored to. Rank 0 alone has one, in a process beside it.

    Any class with these four calls can be named by `tracker._target_`. Its constructor takes the
    node's arguments, checks them (`UserError`), and does nothing else: it also runs where a sweep
    is checked. Calls come in the order written here, `log` and `summary` any number of times.
    """

    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        """Begin to mirror the run.

        Args:
            identity: who the run is; a later attempt of a run comes with the same `run_id`.
            config: the frozen, resolved config as plain values.
            run_dir: the run's directory; the tracker may make one directory of its own in it.
        """
        ...

    def log(self, step: int, values: dict[str, float]) -> None:
        """Add one row of the run's series.

        Args:
            step: optimizer step, counted from the start of the run over all its attempts.
            values: by name, e.g. `train/loss`; may hold NaN.
        """
        ...

    def summary(self, values: dict[str, Any]) -> None:
        """Set the run's single figures by flat name, e.g. `memory/peak_mib`."""
        ...

    def finish(self, status: Status) -> None:
        """The run has ended; write or send what is left."""
        ...


class NullTracker:
    """Mirrors nothing."""

    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        return None

    def log(self, step: int, values: dict[str, float]) -> None:
        return None

    def summary(self, values: dict[str, Any]) -> None:
        return None

    def finish(self, status: Status) -> None:
        return None
