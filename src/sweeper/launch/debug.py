"""Runs in this very process, one after another: for a debugger, at the price of true figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from sweeper.errors import UserError
from sweeper.failure import describe, write_failure
from sweeper.launch.attempt import Attempt, next_attempt
from sweeper.launch.backend import Ended
from sweeper.launch.runs import Resources, Run
from sweeper.launch.settings import Settings
from sweeper.record import now


class DebugBackend:
    """One rank, no process of its own, no time limit, output as it comes."""

    in_process = True
    detaches = False

    def __init__(self, settings: Settings) -> None:
        self.interrupted = False
        self._settings = settings
        self._queue: list[tuple[Attempt, Callable[[], Any]]] = []
        self.on_start: Callable[[Attempt], None] = lambda attempt: None

    @property
    def pending(self) -> Sequence[Attempt]:
        return [attempt for attempt, _ in self._queue]

    @property
    def running(self) -> Sequence[Attempt]:
        return []

    def next_attempt(self, run: Run) -> Attempt:
        return next_attempt(run)

    def flush(self) -> None:
        """Nothing runs here without this command's process."""

    def why_never(self, need: Resources) -> str | None:
        if need.world_size > 1:
            return "the debug launcher runs one rank; use hydra/launcher=local"
        return None

    def submit(self, attempt: Attempt, function: Callable[[], Any]) -> None:
        self._queue.append((attempt, function))

    def adopt(self, attempt: Attempt) -> None:
        raise UserError(
            "hydra/launcher",
            f"{attempt.run.label} still runs in a process of its own",
            "wait for it, or follow it with hydra/launcher=local",
        )

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        if not self._queue:
            return []
        attempt, function = self._queue.pop(0)
        attempt.dir.mkdir(parents=True, exist_ok=True)
        attempt.write_state("running")
        self.on_start(attempt)
        return [self._run(attempt, function)]

    def _run(self, attempt: Attempt, function: Callable[[], Any]) -> Ended:
        before = dict(os.environ)
        os.environ.update(attempt.place().environment())
        os.environ.update(attempt.run.resources.env)
        os.environ["SWEEPER_HEARTBEAT_S"] = str(self._settings.heartbeat_s)
        code = 1
        try:
            function()
            code = 0
        except KeyboardInterrupt:
            self.interrupted = True
            return Ended(attempt, "cancelled")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except Exception as error:  # recorded as the run's failure; the next run goes on
            write_failure(attempt.dir, describe(error, rank=0)[1])
        finally:
            os.environ.clear()
            os.environ.update(before)
        end = {"rank": 0, "code": code, "at": now(), "sent": False, "oom": False}
        return Ended(attempt, "exited", [end])

    def stop(self, attempt: Attempt, reason: str, *, now: bool = False) -> None:
        self._queue = [item for item in self._queue if item[0] is not attempt]
