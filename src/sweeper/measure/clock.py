"""The step clock: times a step's parts without slowing it down."""

from __future__ import annotations

import gc
import itertools
import math
import statistics
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from sweeper.measure.communication import CommunicationTimer
from sweeper.measure.device_clock import DeviceClock, device_clock
from sweeper.measure.timing import StepTime, summarize
from sweeper.observer import Phase
from sweeper.record import StepParts, Time, from_plain

# Where each phase is counted.
_PART: dict[Phase, str] = {
    "data": "data_wait_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "communication": "communication_s",
    "optimizer": "optimizer_s",
    "ema": "rest_s",
    "rest": "rest_s",
}

# Outside the window the clock reads its marks from time to time, so that a long training does not
# pile them up; inside it never waits for the device.
_UNREAD_STEPS = 64

# Reference cycles made inside a long window would hold memory for ever with the collector off.
_STEPS_PER_COLLECTION = 50


@dataclass(frozen=True)
class _Unread:
    """A step whose marks were issued and not read yet."""

    marks: list[tuple[Phase, Any]]
    end: Any
    measured: bool
    regular: bool


class QuietGc:
    """Keeps the garbage collector from running at a moment of its own choice."""

    def __init__(self) -> None:
        self._was_enabled: bool | None = None
        self._froze = False

    def start(self) -> None:
        if self._was_enabled is not None:
            return
        self._was_enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        if gc.get_freeze_count() == 0:  # else it is the program's own freeze, and stays
            gc.freeze()
            self._froze = True

    def stop(self) -> None:
        if self._was_enabled is None:
            return
        if self._froze:
            gc.unfreeze()
            self._froze = False
        if self._was_enabled:
            gc.enable()
        self._was_enabled = None


class StepClock:
    """Times the parts of training steps on the device's own clock; an `Observer`.

    A step begins with its first phase, normally `data`: waiting for the next batch belongs to the
    step. Every phase lasts until the next one or the end of the step, so the parts add up to the
    step. On CUDA every boundary is an event in the stream, read after the window; only the edges of
    the window synchronise. The host's clock runs over the same window, as a check.

    Args:
        device: cpu or cuda.
        clock: the device's clock, where it is not the usual one.
    """

    def __init__(self, device: torch.device | str, clock: DeviceClock | None = None) -> None:
        self._clock = clock if clock is not None else device_clock(device)
        self._mark = self._clock.mark
        self._marks: list[tuple[Phase, Any]] = []
        self._communication: CommunicationTimer | None = None
        self._phase: Phase | None = None
        self._exposed: tuple[int, Any] | None = None  # where the last backward's waiting began
        self._unread: list[_Unread] = []
        self._steps: list[StepTime] = []
        self._gc = QuietGc()
        self._measuring = False
        self._in_window = 0
        self._opened_s = 0.0
        self._wall_s = 0.0
        self._drain_s: float | None = None  # of the last window
        self._ended_s: deque[float] = deque(maxlen=11)

    def time_communication(self, module: nn.Module) -> None:
        """Tell the exposed communication of a data-parallel `module` from its backward."""
        self._communication = CommunicationTimer(self._clock)
        self._communication.attach(module)

    def phase(self, name: Phase) -> None:
        """From here on, the step does `name`; begins a step where none is open."""
        mark = self._mark()
        if self._communication is not None:
            self._follow(name)
        self._marks.append((name, mark))

    def begin_step(self) -> None:
        """Begin a step with waiting for its data: the same as `phase("data")` outside a step."""
        if self._marks:
            raise RuntimeError("the step before has not ended")
        self.phase("data")

    def end_step(self, regular: bool = True) -> None:
        """End the open step.

        Args:
            regular: False for a step unlike the others, such as the last, smaller batch of an
                epoch; it is left out of the statistics.
        """
        if not self._marks:
            raise RuntimeError("no step is open")
        end = self._mark()
        if self._communication is not None:
            self._follow("rest")
        marks, self._marks, self._phase = self._marks, [], None
        if self._exposed is not None:  # only a step's last backward waits for the other ranks
            place, since = self._exposed
            marks.insert(place, ("communication", since))
            self._exposed = None
        self._unread.append(_Unread(marks, end, self._measuring, regular))
        self._ended_s.append(self._clock.host_s())
        if self._measuring:
            self._in_window += 1
            if self._in_window % _STEPS_PER_COLLECTION == 0:
                gc.collect(1)
        elif len(self._unread) >= _UNREAD_STEPS:
            self._read()

    def open_window(self) -> None:
        """Start measuring; waits for the device. A closed window may be opened again."""
        if self._measuring or self._marks:
            raise RuntimeError("a window opens between two steps, and only once")
        self._read()
        self._gc.start()
        self._measuring = True
        self._clock.synchronize()
        self._opened_s = self._clock.host_s()

    def close_window(self) -> None:
        """Stop measuring; waits for the device."""
        if not self._measuring or self._marks:
            raise RuntimeError("a window closes between two steps, after it was opened")
        issued_s = self._clock.host_s()
        self._clock.synchronize()
        closed_s = self._clock.host_s()
        self._drain_s = closed_s - issued_s
        self._wall_s += closed_s - self._opened_s
        self._measuring = False
        self._gc.stop()
        self._read()

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        self._clock.synchronize()

    def abandon(self) -> None:
        """Give up an open step and window after an error; the garbage collector is as before."""
        self._marks, self._phase, self._exposed = [], None, None
        self._measuring = False
        self._gc.stop()

    def steps(self) -> list[StepTime]:
        """Every step so far, in order; waits for the device, so not for use inside a window."""
        self._read()
        return list(self._steps)

    def recent_step_s(self) -> float | None:
        """Median host time between the last ten ends of steps, for a progress display; no wait."""
        ends = list(self._ended_s)
        gaps = [b - a for a, b in itertools.pairwise(ends)]
        return statistics.median(gaps) if gaps else None

    def time(self, global_batch: int) -> Time:
        """The window's statistics on this rank.

        Args:
            global_batch: samples of one step over all ranks.
        """
        return summarize(
            self.steps(),
            global_batch=global_batch,
            clock=self._clock.name,
            wall_s=self._wall_s,
            drain_s=self._drain_s,
        )

    def state_dict(self) -> dict[str, Any]:
        """The steps and the windows so far as plain values; between two windows."""
        return {"steps": [asdict(step) for step in self.steps()], "wall_s": self._wall_s}

    def load_state_dict(self, state: dict[str, Any], *, measured: bool = True) -> None:
        """Go on behind the steps of an earlier process.

        Args:
            state: what its `state_dict` returned.
            measured: False to keep its steps and to forget its windows.
        """
        steps = [from_plain(StepTime, step, "steps") for step in state["steps"]]
        self._steps = [replace(step, measured=step.measured and measured) for step in steps]
        self._wall_s = state["wall_s"] if measured else 0.0

    def _follow(self, name: Phase) -> None:
        assert self._communication is not None
        if self._phase == "backward":
            since = self._communication.last_gradient()
            self._exposed = None if since is None else (len(self._marks), since)
        if name == "backward":
            self._communication.backward_begins()
        self._phase = name

    def _read(self) -> None:
        if not self._unread:
            return
        self._clock.synchronize()
        for step in self._unread:
            moments = [mark for _, mark in step.marks] + [step.end]
            spent: dict[str, list[float]] = {}
            for (name, start), end in zip(step.marks, moments[1:], strict=True):
                spent.setdefault(_PART[name], []).append(self._clock.elapsed_s(start, end))
            parts = {part: math.fsum(times) for part, times in spent.items()}
            self._steps.append(
                StepTime(
                    step_time_s=math.fsum(parts.values()),
                    parts=StepParts(**parts),
                    measured=step.measured,
                    regular=step.regular,
                )
            )
            self._clock.recycle(moments)
        self._unread.clear()
