"""The device a rank computes on, with the limits and the determinism that the config sets."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import psutil
import torch

from sweeper.config import HardwareConfig
from sweeper.errors import UserError
from sweeper.machine.nvml import handle_of, session, used_by
from sweeper.place import Place

# cuBLAS repeats itself only with workspaces of fixed size; read when its first handle is made.
CUBLAS_VARIABLE, CUBLAS_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"

THREADS_VARIABLE = "SWEEPER_THREADS"  # CPU threads per rank, as the launcher divided them


def choose_device(config: HardwareConfig, place: Place) -> torch.device:
    """The rank's device; does not touch it yet.

    Raises:
        UserError: CUDA is asked for where there is none.
    """
    kind = config.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "hardware.device", "cuda is not available here", "use hardware.device=auto or cpu"
        )
    return torch.device(kind, place.local_rank) if kind == "cuda" else torch.device("cpu")


def threads_per_rank(config: HardwareConfig, place: Place) -> int:
    """As configured, else as the launcher divided the cores, else an equal share of them."""
    if config.threads is not None:
        return config.threads
    if THREADS_VARIABLE in os.environ:
        return int(os.environ[THREADS_VARIABLE])
    return max(1, len(os.sched_getaffinity(0)) // place.ranks_per_node)


@contextlib.contextmanager
def limited(config: HardwareConfig, place: Place, device: torch.device) -> Iterator[None]:
    """Threads and memory limit as configured while the block lasts; as before afterwards.

    On CUDA the memory limit is what the allocator may hold beside the context that is there by now;
    what NCCL takes later comes on top. On the CPU it is on top of what the process has by now,
    through RLIMIT_DATA: allocations beyond it fail as they do where memory is short.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_per_rank(config, place))
    limit = memory_limit_bytes(config)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if limit is not None:
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(_share_of_device(limit, device), device)
        else:
            used = psutil.Process().memory_info().data
            resource.setrlimit(resource.RLIMIT_DATA, (used + limit, before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        resource.setrlimit(resource.RLIMIT_DATA, before)
        if limit is not None and device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, device)


def _share_of_device(limit_bytes: int, device: torch.device) -> float:
    """What the allocator may hold, as a share of the device's memory.

    Raises:
        UserError: the limit leaves no room beside the context.
    """
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
    torch.empty(1, device=device)  # makes the context
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    held_bytes = torch.cuda.memory_reserved(device)
    with session() as nvml:
        handle = None if nvml is None else handle_of(nvml, device.index or 0, os.environ)
        own_bytes = None if handle is None else used_by(nvml, handle, os.getpid())
    # Where NVML does not know this process, all that is in use counts, whoever uses it.
    used_bytes = total_bytes - free_bytes if own_bytes is None else own_bytes
    room_bytes = limit_bytes - (used_bytes - held_bytes)
    if room_bytes <= 0:
        raise UserError(
            "hardware.memory_limit_gib",
            f"{limit_bytes / 2**30:g} GiB is less than the device's context takes",
            "use more",
        )
    return min(1.0, room_bytes / total_bytes)


@contextlib.contextmanager
def reproducible(repro: str) -> Iterator[None]:
    """With `strict`, torch uses deterministic algorithms alone while the block lasts.

    Enter it before anything computes on CUDA. An operation that has no deterministic algorithm then
    raises, and says so; its run fails rather than being repeatable in name only. torch also fills
    memory that is taken without being set, so that a read of it would show.

    Args:
        repro: `fast` leaves everything as it is.
    """
    if repro != "strict":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    workspaces = os.environ.get(CUBLAS_VARIABLE)
    if workspaces not in (":4096:8", ":16:8"):  # the two that are deterministic
        os.environ[CUBLAS_VARIABLE] = CUBLAS_WORKSPACES
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        enabled, cudnn.benchmark, cudnn.deterministic = before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        if workspaces is None:
            del os.environ[CUBLAS_VARIABLE]
        else:
            os.environ[CUBLAS_VARIABLE] = workspaces


def memory_limit_bytes(config: HardwareConfig) -> int | None:
    limit = config.memory_limit_gib
    return None if limit is None else round(limit * 2**30)
