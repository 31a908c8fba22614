"""The files of a run directory: read with a clear word on what is wrong, written atomically.

run.json      who the run is (Identity), written before it starts
config.yaml   the frozen, resolved config
state.json    where the run is now (State), rewritten while it lives
record.json   what it left behind (Record), written once and never over a final one
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeper.record.plain import RecordError, dump, from_plain
from sweeper.record.schema import SCHEMA_VERSION, Identity, Record, State

RECORD_FILE = "record.json"
STATE_FILE = "state.json"
IDENTITY_FILE = "run.json"
CONFIG_FILE = "config.yaml"
STEPS_FILE = "steps.csv"
DRAFT_FILE = "draft.json"  # in attempt<N>: the record as far as the run has come


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise RecordError(f"{path}: not readable as JSON ({error})") from error


def read_record(path: Path) -> Record:
    """Read a record.json.

    Raises:
        FileNotFoundError: there is none.
        RecordError: truncated, foreign, or written by a newer version.
    """
    data = _read_json(path)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise RecordError(f"{path}: not a record (it has no schema_version)")
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"{path}: schema {version} is newer than this program's {SCHEMA_VERSION}; "
            "upgrade sweeper"
        )
    return from_plain(Record, data, str(path))


def read_state(run_dir: Path) -> State | None:
    """The run's state, or None where it has none (yet)."""
    try:
        return from_plain(State, _read_json(run_dir / STATE_FILE), str(run_dir / STATE_FILE))
    except FileNotFoundError:
        return None


def read_identity(run_dir: Path) -> Identity:
    return from_plain(Identity, _read_json(run_dir / IDENTITY_FILE), str(run_dir / IDENTITY_FILE))


@contextlib.contextmanager
def _temporary(path: Path, text: str) -> Iterator[str]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader sees the old text or the new, never a part."""
    with _temporary(path, text) as name:
        os.replace(name, path)


def write_state(run_dir: Path, state: State) -> None:
    write_atomic(run_dir / STATE_FILE, dump(state))


def write_identity(run_dir: Path, identity: Identity) -> None:
    write_atomic(run_dir / IDENTITY_FILE, dump(identity))


def write_record(run_dir: Path, record: Record) -> bool:
    """Write the record unless the run already has one, or a later attempt. Returns whether this
    call wrote it.

    A hard link fails where the name exists: of two writers exactly one wins.
    """
    path = run_dir / RECORD_FILE
    if (run_dir / f"attempt{record.attempt + 1}").exists():
        return False  # this attempt was given up for lost, and the run started again
    with _temporary(path, dump(record)) as name:
        try:
            os.link(name, path)
        except FileExistsError:
            return False
    return True
