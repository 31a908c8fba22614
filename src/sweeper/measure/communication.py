"""How much of a data-parallel backward is waiting for the other ranks.

While a backward computes gradients, finished ones are already reduced over the ranks; that part is
hidden. What remains after the rank's last gradient is exposed: the rank does nothing but wait, for
the transfer or for a slower rank. The start of that wait is taken with public hooks that fire when
a parameter's gradient is accumulated, before DistributedDataParallel hears of it; its end is the
end of the backward, which does not return (on CUDA: does not pass the stream) before every reduced
gradient has arrived. The reduction itself is left alone, so the gradients stay the same bit for
bit.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sweeper.measure.device_clock import DeviceClock


class CommunicationTimer:
    """Marks the last gradient of each backward.

    A hook is called for each gradient, but a mark is taken only from the fewest gradients that a
    backward was ever seen to have; so a fixed model costs one mark a backward.
    """

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock
        self._handles: list[RemovableHandle] = []
        self._seen = 0
        self._fewest = 0
        self._mark: Any = None

    def attach(self, module: nn.Module) -> None:
        """Watch every trainable parameter of `module`, a DistributedDataParallel."""
        for parameter in module.parameters():
            if parameter.requires_grad:
                self._handles.append(
                    parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        self._gradient  # torch has no type for the call
                    )
                )

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def backward_begins(self) -> None:
        self._seen, self._mark = 0, None

    def last_gradient(self) -> Any:
        """The mark of the backward's last gradient, to be asked when the backward has returned.

        None where it is not known: this backward had fewer gradients than any before it, so that
        no mark was taken. Its communication then stays within the backward's time.
        """
        mark, self._mark = self._mark, None
        if self._seen and (not self._fewest or self._seen < self._fewest):
            self._fewest = self._seen
        return mark

    def _gradient(self, _parameter: Tensor) -> None:
        self._seen += 1
        if self._seen >= self._fewest:
            self._mark = self._clock.mark()
