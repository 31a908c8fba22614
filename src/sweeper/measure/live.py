"""Follows every tensor storage through a step, and finds the peak of their bytes by component.

A dispatch mode sees every operator's tensors. A storage counts from the operator that made it to
the moment it is freed, once however many tensors share it. Only afterwards, when it is known which
storages became gradients or optimizer state, is the peak resolved into components.

Not seen: memory that a kernel takes and gives back within one operator, what compiled graphs keep
to themselves, and memory outside tensors.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Persistent = Mapping[str, Sequence[Tensor]]

# A storage that belongs to several components counts as the first of them: gradients that are
# views of communication buckets are gradients.
COMPONENTS = ("parameters", "gradients", "optimizer", "ema", "buckets", "data")
_ACTIVATIONS = len(COMPONENTS)  # made by the step, and none of the above
_REMAINDER = len(COMPONENTS) + 1  # there before the step, or made by the optimizer for a moment

_aten = torch.ops.aten


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


class LiveBytes(TorchDispatchMode):
    """Follows the storages of one kind of device through a step.

    Storages are numbered in the order in which they are met. `_cdata`, the address of a storage,
    identifies it while it lives; a weak reference tells when it is freed, before the address can be
    used again.

    Args:
        device_type: cpu or cuda; storages elsewhere are not counted.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no type for it
        self.in_optimizer = False
        self.given_back: list[tuple[int, int]] = []  # Unix ns, bytes: blocks from before the step
        self._device_type = device_type
        self._number: dict[int, int] = {}  # address -> number
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # number -> reference
        self._before: list[int] = []  # number -> bytes it had before the step
        self._old: set[int] = set()  # numbers whose block of memory is from before the step
        self._size: list[int] = []  # number -> bytes it has now
        self._component: list[int] = []  # number -> index into COMPONENTS, or one of the two after
        self._changed: list[int] = []  # log of the step: number ...
        self._change: list[int] = []  # ... and by how many bytes

    def tag(self, persistent: Persistent) -> None:
        """Say which component tensors belong to.

        A storage not met before was there before the step.
        """
        for component, tensors in persistent.items():
            rank = COMPONENTS.index(component)
            for tensor in _tensors(tensors):
                number = self._meet(tensor, made=False)
                if number is not None:
                    self._component[number] = min(self._component[number], rank)

    def bytes_before(self) -> int:
        """Bytes of the storages that were there before the step."""
        return sum(self._before)

    def peak(self) -> dict[str, int]:
        """Bytes by component at the peak, `activations` and `remainder` among them."""
        numbers = np.asarray(self._changed, dtype=np.int64)
        changes = np.asarray(self._change, dtype=np.int64)
        live = np.concatenate([[0], np.cumsum(changes)])
        moment = int(live.argmax())
        held = np.asarray(self._before, dtype=np.int64)
        np.add.at(held, numbers[:moment], changes[:moment])
        names = (*COMPONENTS, "activations", "remainder")
        parts = np.zeros(len(names), dtype=np.int64)
        np.add.at(parts, np.asarray(self._component, dtype=np.int64), held)
        return dict(zip(names, parts.tolist(), strict=True))

    def __enter__(self) -> LiveBytes:
        # Sharded training frees storages by resizing them, which no dispatch mode sees.
        self._resize = resize = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            number = self._number.get(storage._cdata)
            if number is not None:
                self._resized(number, storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]  # put back
        super().__enter__()  # type: ignore[no-untyped-call]  # torch has no type for it
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch has no type for it
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]  # put back
        self._references.clear()  # what is freed from now on is not of the step

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        met = len(self._size)
        for tensor in _tensors((*args, *kwargs.values())):
            self._meet(tensor, made=False)
        found = len(self._size)  # storages met..found were there before and nobody spoke of them
        if func is _aten.add_.Tensor and _accumulates(args):
            self.tag({"gradients": [args[1]]})  # a new gradient, about to be added to the kept one
        out = func(*args, **kwargs)
        for tensor in _tensors((out,)):
            number = self._meet(tensor, made=True)
            if number is not None and met <= number < found and _in_backward():
                # Written in the backward without ever being read in the forward: where
                # DistributedDataParallel gathers gradients to send them.
                rank = COMPONENTS.index("buckets")
                self._component[number] = min(self._component[number], rank)
        return out

    def _meet(self, tensor: Tensor, made: bool) -> int | None:
        """The number of the tensor's storage; a new one if it was not met before.

        Args:
            tensor: strided tensors on the device are counted, others are not.
            made: by the operator that just ran; otherwise it was there before the step.
        """
        if tensor.device.type != self._device_type or tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        address = storage._cdata
        number = self._number.get(address)
        if number is not None:
            self._resized(number, storage)
            return number
        number = self._number[address] = len(self._size)
        size = storage.nbytes()
        self._references[number] = weakref.ref(storage, lambda _: self._freed(address, number))
        self._before.append(0 if made else size)
        if not made:
            self._old.add(number)
        self._size.append(0 if made else size)
        by_step = _REMAINDER if self.in_optimizer else _ACTIVATIONS
        self._component.append(by_step if made else _REMAINDER)
        if made:
            self._set(number, size)
        return number

    def _resized(self, number: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        if size != self._size[number]:
            self._set(number, size)

    def _freed(self, address: int, number: int) -> None:
        self._set(number, 0)
        if self._number.get(address) == number:
            del self._number[address]
        self._references.pop(number, None)

    def _set(self, number: int, size: int) -> None:
        was = self._size[number]
        if number in self._old:
            self._old.remove(number)
            self.given_back.append((time.time_ns(), was))
        self._size[number] = size
        self._changed.append(number)
        self._change.append(size - was)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _accumulates(args: tuple[Any, ...]) -> bool:
    """Whether the running operator is autograd adding to the gradient of a parameter."""
    if not _in_backward():
        return False
    node = torch._C._current_autograd_node()
    if node is None or not node.name().endswith("AccumulateGrad"):
        return False
    return len(args) == 2 and args[0] is node.variable.grad  # type: ignore[attr-defined]  # its own
