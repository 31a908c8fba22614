"""The snapshot of an interrupted run: all that its next attempt needs to continue it.

One file in the run's directory. It is complete or it is not there: written beside its place, synced
to the disk and renamed, so that an earlier snapshot stands until the new one does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

SNAPSHOT_FILE = "snapshot.pt"
SCHEMA_VERSION = 1
_KIND = "sweeper snapshot"

# What torch.load raises on a file that is truncated, damaged, or something else altogether.
_UNREADABLE = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)


class SnapshotError(Exception):
    """A snapshot that cannot be written or is not to be used; the message says why."""


@dataclass(kw_only=True)
class Snapshot:
    """A run between two steps. Everything but tensors is plain values.

    Attributes:
        config_id: of the run's config.
        device: kind of device, cpu or cuda.
        step: optimizer steps done.
        training: `TrainStep.state_dict()` of rank 0; the weights are the same on all ranks.
        figures: what the run as a whole has measured.
        ranks: what belongs to each rank alone, in rank order.
    """

    config_id: str
    device: str
    step: int
    training: dict[str, Any]
    figures: dict[str, Any]
    ranks: list[dict[str, Any]]

    def save(self, run_dir: Path) -> None:
        """Write it in place of an earlier one.

        Raises:
            SnapshotError: it cannot be written; an earlier one is still there.
        """
        path = run_dir / SNAPSHOT_FILE
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        remove_temporary(run_dir)
        try:
            with _replacing(path) as file:
                torch.save({"kind": _KIND, "schema_version": SCHEMA_VERSION, **content}, file)
        except (OSError, RuntimeError) as error:  # torch wraps the system's error, not always
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            kept = "; the earlier one is intact" if path.exists() else ""
            raise SnapshotError(
                f"the snapshot of step {self.step} cannot be written to {path}: {cause}{kept}"
            ) from error

    @classmethod
    def load(cls, run_dir: Path) -> Snapshot | None:
        """The run's snapshot with its tensors on the CPU, or None if it has none.

        Raises:
            SnapshotError: truncated, damaged, or written by a newer version.
        """
        path = run_dir / SNAPSHOT_FILE
        if not path.exists():
            return None
        try:
            _check_sums(path)
            content = torch.load(path, map_location="cpu", weights_only=True)
        except _UNREADABLE as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise SnapshotError(f"it is truncated or damaged ({reason})") from error
        if not isinstance(content, dict) or content.get("kind") != _KIND:
            raise SnapshotError("it is no snapshot of a run")
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            raise SnapshotError(f"its schema is {version}, this program's is {SCHEMA_VERSION}")
        try:
            return cls(**{item.name: content[item.name] for item in fields(cls)})
        except KeyError as error:
            raise SnapshotError(f"it has no {error}") from error

    def check(self, config_id: str, device: str, world_size: int, model: nn.Module) -> None:
        """Check that it is this run's.

        Raises:
            SnapshotError: it is another configuration's, or the model has changed since.
        """
        for what, found, wanted in (
            ("config", self.config_id, config_id),
            ("device", self.device, device),
            ("number of ranks", len(self.ranks), world_size),
        ):
            if found != wanted:
                raise SnapshotError(f"its {what} is {found}, this run's is {wanted}")
        saved = {name: value.shape for name, value in self.training["model"].items()}
        here = {name: value.shape for name, value in model.state_dict().items()}
        if saved != here:
            changed = sorted(n for n in saved | here if saved.get(n) != here.get(n))
            raise SnapshotError(f"the model's code has changed since: {', '.join(changed[:3])}")


def _check_sums(path: Path) -> None:
    """torch writes a checksum of every part, and does not look at them when it reads."""
    with zipfile.ZipFile(path) as archive:
        bad = archive.testzip()
    if bad is not None:
        raise zipfile.BadZipFile(f"the checksum of {bad} is wrong")


def remove(run_dir: Path) -> None:
    """Remove the snapshot of a run that has its record."""
    with contextlib.suppress(OSError):
        (run_dir / SNAPSHOT_FILE).unlink(missing_ok=True)
        remove_temporary(run_dir)


def remove_temporary(run_dir: Path) -> None:
    """Remove what an attempt that was killed while it saved has left."""
    for path in run_dir.glob(f".{SNAPSHOT_FILE}.*"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """A binary file that takes the place of `path` once it is complete and on the disk."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the rename itself must outlive a crash of the machine
    finally:
        os.close(directory)
