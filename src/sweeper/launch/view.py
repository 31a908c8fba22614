"""What the person sees while a sweep runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from sweeper.launch.attempt import Attempt
from sweeper.launch.progress import Progress, read_progress, sweep_time_left_s
from sweeper.launch.render import duration, table
from sweeper.launch.runs import Run
from sweeper.record import Record, Status

if TYPE_CHECKING:
    from rich.console import Console


# Of the live view: the headings, how many are not shown, the summary, and where the cursor stands.
_LINES_BESIDE = 4


class View(Protocol):
    def __enter__(self) -> View: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begin(self, total: int, kept: int) -> None:
        """The sweep has so many runs, and records of so many already."""

    def note(self, text: str) -> None: ...

    def started(self, run: Run) -> None: ...

    def ended(self, run: Run, record: Record) -> None: ...

    def tick(self, running: Sequence[Attempt], waiting: int) -> None:
        """About once a second."""


class PlainView:
    """One line an event; for logs and pipes.

    Args:
        write: prints one line.
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or (lambda text: print(text, flush=True))
        self._counts: Counter[str] = Counter()
        self._ended: list[Progress] = []

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def begin(self, total: int, kept: int) -> None:
        done = f", {kept} of them recorded already" if kept else ""
        self._write(f"{total} run{'s' if total != 1 else ''}{done}")

    def note(self, text: str) -> None:
        self._write(text)

    def started(self, run: Run) -> None:
        self._write(f"started   {run.label}")

    def ended(self, run: Run, record: Record) -> None:
        self._counts[record.status.value] += 1
        progress = Progress(run.label, record.status.value, record=record)
        self._ended.append(progress)
        took = f" in {duration(progress.took_s)}" if progress.took_s is not None else ""
        self._write(f"{record.status.value:9} {run.label}{took}{_why(run, record)}")

    def tick(self, running: Sequence[Attempt], waiting: int) -> None:
        return None


def _why(run: Run, record: Record) -> str:
    """The reason of a run that did not complete, and where its log is."""
    error = record.error
    if error is None or record.status in (Status.COMPLETED, Status.CANCELLED):
        return ""
    lines = error.message.strip().splitlines()
    first = lines[0] if lines else ""
    text = first if record.status is Status.SKIPPED else f"{error.type}: {first}"
    log = f"\n          see {run.run_dir / error.log}" if error.log else ""
    return f": {text}{log}"


class LiveView(PlainView):
    """A table that is redrawn in place, with the events above it; for terminals."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        super().__init__(lambda text: self._console.print(text, highlight=False, markup=False))
        self._started_at = time.monotonic()

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def tick(self, running: Sequence[Attempt], waiting: int) -> None:
        rows = [read_progress(attempt.run.run_dir, attempt.run.label) for attempt in running]
        for row in rows:
            if row.status == "queued":  # its process has not yet said that it is there
                row.status = "starting"
        queued = [Progress("", "queued")] * waiting
        left = sweep_time_left_s([*self._ended, *rows, *queued], parallel=max(1, len(running)))
        counts = ", ".join(f"{n} {name}" for name, n in self._counts.items())
        parts = [part for part in (counts, f"{len(rows)} running", f"{waiting} queued") if part]
        elapsed = duration(time.monotonic() - self._started_at)
        caption = f"{', '.join(parts)} · {elapsed} gone"
        if left is not None:
            caption += f", {duration(left)} left"
        # What does not fit the screen would take the last line, the summary, with it.
        room = max(1, self._console.height - _LINES_BESIDE)
        if len(rows) > room:
            caption = f"and {len(rows) - room} more that run\n{caption}"
        self._live.update(table(rows[:room], caption), refresh=True)


def best_view() -> View:
    """Live where standard output is a terminal, plain lines otherwise."""
    return LiveView() if sys.stdout.isatty() else PlainView()
