"""What a place to run on has to offer: this machine, this process, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeper.launch.attempt import Attempt
from sweeper.launch.runs import Resources, Run


@dataclass
class Ended:
    """An attempt that runs no more."""

    attempt: Attempt
    reason: str  # exited, rank, timeout, lost, or what it was stopped with
    exits: Sequence[dict[str, Any]] = field(default_factory=list)  # see finish.finish


class Backend(Protocol):
    """Queues attempts, starts their ranks, and tells of their end."""

    in_process: bool  # a run holds up this process; Ctrl-C then reaches it first
    interrupted: bool  # it was, by Ctrl-C, while a run held it up
    detaches: bool  # runs go on, and start, without this command

    @property
    def pending(self) -> Sequence[Attempt]: ...

    @property
    def running(self) -> Sequence[Attempt]: ...

    def next_attempt(self, run: Run) -> Attempt:
        """See `attempt.next_attempt`; a backend may know of more that still runs."""

    def why_never(self, need: Resources) -> str | None:
        """Why no slot can ever be large enough, or None."""

    def submit(self, attempt: Attempt, function: Callable[[], Any]) -> None:
        """Queue an attempt; `function` is what each of its ranks calls. It can be pickled."""

    def adopt(self, attempt: Attempt) -> None:
        """Follow an attempt that an earlier command started."""

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        """Start what fits, wait for news at most so long, and return what has ended."""

    def flush(self) -> None:
        """Hand what was submitted on to where it runs without this command."""

    def stop(self, attempt: Attempt, reason: str, *, now: bool = False) -> None:
        """End a running attempt, or take a waiting one out of the queue without a word."""
