"""Stopping in time: Slurm's warning before a time limit or a preemption, heard and agreed on.

The warning is SIGUSR2. It may reach all ranks, each at its own moment, or only one of them. Ranks
must stop after the same step, and while nothing is asked for, a step must cost nothing more: a rank
then looks at one attribute. Once a rank was asked:

1. At its next boundary between two steps it says so in the ranks' store; a thread of every other
   rank, asleep in a wait for just that, passes it on. So all ranks get to know, in bounded time.
2. From then on a rank waits for its device at each boundary. It can have finished step s + 1 only
   once every other rank has begun it, since gradients are averaged in every step.
3. When all ranks have been at such a boundary, rank 0, having finished s steps, publishes s + 1 and
   goes on. Every other rank is still before its boundary s + 1, and there reads it.

Nobody waits for a decision. Where the steps run out first, all ranks simply finish them.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher knows the exception, and imports no torch
    from torch.distributed import Store  # type: ignore[attr-defined]  # torch does not declare it

PREEMPT_SIGNAL = signal.SIGUSR2

_ASKED = "preemption/asked"  # set once; wakes the threads that wait for it
_READY = "preemption/ready"  # how many ranks have heard of it
_STOP_AT = "preemption/stop_at"  # steps after which all stop; 0 = not decided
_YES, _OVER = "yes", "over"

_FOREVER = timedelta(days=365)


class Preempted(Exception):  # noqa: N818  # nothing went wrong here
    """The run was asked to stop, saved a snapshot and is to be continued by its next attempt.

    Attributes:
        step: optimizer steps done.
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step

    def __str__(self) -> str:
        return f"preempted at step {self.step}"


class Preemption:
    """Listens for the signal while the `with` block lasts; as before afterwards.

    Outside a program's main thread, where Python does not let handlers be set, it hears nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._ranks: _Ranks | None = None
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Preemption:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(PREEMPT_SIGNAL, self.ask)
            self._installed = True
        return self

    def __exit__(self, *exc: object) -> None:
        if self._installed:
            # None: the handler before was not set from Python, and cannot be set from it.
            signal.signal(PREEMPT_SIGNAL, self._previous or signal.SIG_DFL)
            self._installed = False

    def ask(self, number: int = 0, frame: FrameType | None = None) -> None:
        self.asked = True

    @contextlib.contextmanager
    def between(
        self,
        store: Store | None,
        rank: int,
        world_size: int,
        synchronize: Callable[[], None],
    ) -> Iterator[None]:
        """While the block lasts, `due` is the ranks' common decision.

        Args:
            store: that all ranks share; None = there is only one.
            rank: this one.
            world_size: number of ranks.
            synchronize: waits for this rank's device.
        """
        if store is None:
            yield
            return
        self._ranks = _Ranks(store, rank, world_size, synchronize, self.ask)
        try:
            yield
        finally:
            self._ranks.close()
            self._ranks = None

    def due(self, step: int) -> bool:
        """Whether to stop now. Every rank asks before each step, with the number of steps done."""
        if not self.asked:
            return False
        return self._ranks is None or self._ranks.agree(step)


class _Ranks:
    """The ranks' agreement on a step."""

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        synchronize: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        self._synchronize, self._ask = synchronize, ask
        self._ready = False
        self._stop_at = 0
        # A connection of its own: a wait keeps every other call on the same one waiting.
        self._thread = threading.Thread(
            target=self._listen,
            args=(store.clone(),),  # type: ignore[attr-defined]  # missing in its stub
            name="preemption",
            daemon=True,
        )
        self._thread.start()

    def agree(self, step: int) -> bool:
        self._synchronize()
        if not self._ready:
            self._ready = True
            self._store.add(_READY, 1)
            self._store.set(_ASKED, _YES)
        # `set` returns before the server has the value, `add` does not.
        if not self._stop_at:
            self._stop_at = self._store.add(_STOP_AT, 0)
        decides = self._rank == 0 and not self._stop_at
        if decides and self._store.add(_READY, 0) == self._world_size:
            self._stop_at = self._store.add(_STOP_AT, step + 1)
        return 0 < self._stop_at <= step

    def close(self) -> None:
        """End the thread; the store may be gone by now, and then the thread has ended by itself."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # torch's DistError is one
                self._store.set(_ASKED, _OVER)
            self._thread.join(timeout=5)

    def _listen(self, store: Store) -> None:
        # Signals are for the main thread; here one would end the wait with an error.
        signal.pthread_sigmask(signal.SIG_BLOCK, {PREEMPT_SIGNAL})
        with contextlib.suppress(RuntimeError):
            store.wait([_ASKED], _FOREVER)
            if store.get(_ASKED) == _YES.encode():
                self._ask()
