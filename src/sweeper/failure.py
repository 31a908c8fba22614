"""Why a run did not complete: exceptions as `Failure`s, and the culprit among several ranks.

A rank that fails writes `attempt<N>/failure.rank<k>.json`. When one rank fails, the others fail
too, with errors of the communication library; those are told apart here, so that the record names
the rank and the error that began it. The status follows from the failure's type and message alone,
so that a file is as good as the exception.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweeper.record import (
    Failure,
    RecordError,
    Status,
    dump,
    from_plain,
    now,
    read_record,
    write_atomic,
)

ENDED_FILE = "ended.json"  # in attempt<N>: the record of an attempt that a later one superseded

_OOM_TYPES = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")

# Each is the wording of one library: torch's allocators, cuBLAS, cuDNN, NCCL, the CUDA runtime.
_OOM_MESSAGE = re.compile(
    r"(CUDA|HIP|XPU|MPS backend) out of memory"
    r"|CUDA error: out of memory"
    r"|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    r"|DefaultCPUAllocator: .*(not enough|can't allocate) memory"
    r"|NCCL.*out of memory"
    r"|Cannot allocate memory",
    re.DOTALL,
)

_DIVERGED_TYPES = ("DivergedError",)

# The run was told to go, and saved itself or left the field to its next attempt.
_ENDED_TYPES = ("Preempted", "Superseded")

# What the surviving ranks say when another one has gone.
_SECONDARY_MESSAGE = re.compile(
    r"Connection (closed|reset|refused|aborted)"
    r"|Broken pipe"
    r"|peer closed"
    r"|remote process exited"
    r"|(ncclRemoteError|ncclInternalError|ncclSystemError)"
    r"|(NCCL )?communicator was aborted"
    r"|process ?group .*(aborted|shut ?down)"
    r"|collective operation timeout"
    r"|[Tt]imed out (waiting|after)"
    r"|wait timeout"
    r"|Socket Timeout"
    r"|Gloo .*(timeout|failed)"
    r"|terminated by peer",
    re.DOTALL | re.IGNORECASE,
)
_SECONDARY_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError")

# Packages whose frames stand between the process and the task.
_CALLERS = ("hydra", "hydra_plugins", "submitit")

_BYTES = re.compile(r"allocate\D{0,20}?(\d+(?:\.\d+)?) ?(bytes|B|KiB|MiB|GiB|TiB|PiB)\b")
_UNITS = {"bytes": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50}


def bytes_requested(message: str) -> int | None:
    """The size of the allocation that failed, bytes, where the message tells it."""
    found = _BYTES.search(message)
    if found is None:
        return None
    return round(float(found[1]) * (1 << _UNITS[found[2]]))


def status_of(failure: Failure) -> Status:
    """`oom`, `diverged`, `killed` or `failed`, from the failure's type and message."""
    kind = failure.type.rpartition(".")[2]
    if kind in _OOM_TYPES or _OOM_MESSAGE.search(failure.message):
        return Status.OOM
    if kind in _DIVERGED_TYPES:
        return Status.DIVERGED
    return Status.KILLED if kind in _ENDED_TYPES else Status.FAILED


def is_secondary(failure: Failure) -> bool:
    """Whether this only says that another rank has gone."""
    if status_of(failure) is not Status.FAILED:
        return False
    kind = failure.type.rpartition(".")[2]
    return kind in _SECONDARY_TYPES or bool(_SECONDARY_MESSAGE.search(failure.message))


def describe(error: BaseException, rank: int | None = None) -> tuple[Status, Failure]:
    """The status and the description of an exception.

    An exception raised `from` another is judged by the whole chain of causes: an out-of-memory
    error wrapped by a library is still one. Nothing of the exception is kept, so its frames and
    their tensors can be freed.
    """
    text = "".join(own_traceback(error))
    shown, cause = error, error.__cause__
    while cause is not None:
        kind = type(cause).__name__
        if status_of(Failure(type=kind, message=str(cause))) is not Status.FAILED:
            shown = cause
            break
        cause = cause.__cause__
    failure = Failure(
        type=type(shown).__name__, message=str(shown), rank=rank, traceback=text, at=now()
    )
    status = status_of(failure)
    if status is Status.OOM:
        failure.bytes_requested = bytes_requested(failure.message)
    return status, failure


def own_traceback(error: BaseException) -> list[str]:
    """The formatted traceback, without the frames of what called the task."""
    inner = error.__traceback__
    while inner is not None:
        module = str(inner.tb_frame.f_globals.get("__name__"))
        if module.split(".")[0] not in _CALLERS and not module.startswith("sweeper.launch."):
            break
        inner = inner.tb_next
    return traceback.format_exception(type(error), error, inner or error.__traceback__)


def culprit(failures: Iterable[Failure]) -> Failure:
    """The earliest failure that is not a mere consequence of another rank's end.

    Raises:
        ValueError: there are no failures.
    """
    ordered = sorted(failures, key=lambda f: f.at or "")
    if not ordered:
        raise ValueError("no failures")
    return next((f for f in ordered if not is_secondary(f)), ordered[0])


def failure_file(attempt_dir: Path, rank: int) -> Path:
    return attempt_dir / f"failure.rank{rank}.json"


def write_failure(attempt_dir: Path, failure: Failure) -> None:
    """Write the rank's failure unless it has one: the first word counts."""
    path = failure_file(attempt_dir, failure.rank or 0)
    if not path.exists():
        write_atomic(path, dump(failure))


def read_failures(attempt_dir: Path) -> list[Failure]:
    """Failures of all ranks of an attempt; a file that cannot be read is passed over."""
    found = []
    for path in sorted(attempt_dir.glob("failure.rank*.json")):
        try:
            found.append(from_plain(Failure, json.loads(path.read_text("utf-8")), str(path)))
        except (OSError, ValueError, RecordError):
            continue
    return found


def earlier_attempts(run_dir: Path, attempt: int) -> list[dict[str, Any]]:
    """How the attempts before `attempt` ended, for `Record.attempts`."""
    ends: list[dict[str, Any]] = []
    for number in range(attempt):
        try:
            record = read_record(run_dir / f"attempt{number}" / ENDED_FILE)
        except (FileNotFoundError, RecordError):
            continue
        ends.append(
            {
                "attempt": number,
                "status": record.status.value,
                "phase": record.phase,
                "finished_at": record.finished_at,
                "error": record.error.type if record.error else None,
                "message": record.error.message if record.error else None,
            }
        )
    return ends
