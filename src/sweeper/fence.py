"""Two attempts of a run must not both write its results: the older one ends without writing.

A scheduler may start a run again while the first copy still runs, cut off from it on a lost node.
The newer attempt is known by its directory, or by the attempt in the run's state.
"""

from __future__ import annotations

import contextlib
import re

from sweeper.place import Place
from sweeper.record import RecordError, read_state


class Superseded(Exception):  # noqa: N818  # nothing went wrong here
    """A newer attempt of the same run exists; this one leaves the run's directory alone."""


def newest_attempt(place: Place) -> int:
    """The highest number among this attempt and those that have left a trace."""
    numbers = [place.attempt]
    # Listing the directory also makes a network file system look for new entries.
    for path in place.run_dir.glob("attempt*"):
        match = re.fullmatch(r"attempt(\d+)", path.name)
        if match:
            numbers.append(int(match[1]))
    with contextlib.suppress(OSError, RecordError):
        state = read_state(place.run_dir)
        if state is not None:
            numbers.append(state.attempt)
    return max(numbers)


def check_newest(place: Place) -> None:
    """Call it right before anything is written that belongs to the run and not to the attempt.

    Raises:
        Superseded: a newer attempt exists.
    """
    newest = newest_attempt(place)
    if newest > place.attempt:
        raise Superseded(
            f"attempt {place.attempt} ends without writing: attempt {newest} of the run exists"
        )
