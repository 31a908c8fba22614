"""Records of sweep directories, as one frame and a list of what is not in it.

What counts as one run
    A run is named by (sweep, config id, repeat). The same run found twice, under one id or two, is
    counted once: the first one found stays, and the other is reported. One configuration (config
    id) in several sweeps is not a duplicate: its runs are further repeats of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import bulk
from analysis.columns import Chunk, ChunkBuilder, Problem
from analysis.derive import derive, without_impossible
from analysis.frame import join
from sweeper.errors import UserError
from sweeper.record import (
    IDENTITY_FILE,
    RECORD_FILE,
    RecordError,
    State,
    read_identity,
    read_state,
)

# Records that are read and parsed together.
BATCH = 2000


@dataclass(frozen=True)
class Unfinished:
    """A run without a record: where it is now, by its state file."""

    run_dir: Path
    variant: str
    state: State

    def __str__(self) -> str:
        step = f", step {self.state.step}" if self.state.step is not None else ""
        if step and self.state.total_steps is not None:
            step += f" of {self.state.total_steps}"
        seen = f", last heard of {self.state.heartbeat_at}" if self.state.heartbeat_at else ""
        return f"{self.variant or self.run_dir.name}: {self.state.state}{step}{seen}"


@dataclass(frozen=True)
class Read:
    """Records of directories, before they are one frame."""

    chunks: list[Chunk]
    problems: list[Problem]
    unfinished: list[Unfinished]


@dataclass(frozen=True)
class Loaded:
    """What a source held: one row per run, what was left out, and the runs still to come."""

    frame: pd.DataFrame
    problems: tuple[Problem, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()


def _read(paths: Sequence[str]) -> tuple[Chunk, list[str]]:
    """Records of some run directories, and the directories without one."""
    problems: list[Problem] = []
    where: list[str] = []
    texts: list[bytes] = []
    without: list[str] = []
    for path in paths:
        name = f"{path}/{RECORD_FILE}"
        try:
            with open(name, "rb", buffering=0) as file:
                texts.append(file.read())
            where.append(path)
        except FileNotFoundError:
            without.append(path)
        except OSError as error:
            problems.append(Problem(name, f"cannot be read ({error.strerror})"))
    chunk = bulk.read(where, texts) if texts else None
    if chunk is None:
        chunk = _read_each(where, texts)
    chunk.problems[:0] = problems
    return chunk, without


def _read_each(where: Sequence[str], texts: Sequence[bytes]) -> Chunk:
    """Record by record; each that cannot be used becomes a problem."""
    builder = ChunkBuilder()
    for path, text in zip(where, texts, strict=True):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            name = f"{path}/{RECORD_FILE}"
            builder.problems.append(Problem(name, f"not readable as JSON ({error})"))
        else:
            builder.add(path, data)
    return builder.finish()


def _read_all(paths: Sequence[str], workers: int) -> list[tuple[Chunk, list[str]]]:
    batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
    if workers < 2 or len(batches) < 2:
        return [_read(batch) for batch in batches]
    # Threads suffice: reading files and parsing them both happen outside of Python.
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(_read, batches))


def _is_run(path: Path) -> bool:
    return (path / RECORD_FILE).exists() or (path / IDENTITY_FILE).exists()


def _candidates(source: Path) -> list[str]:
    """Directories that may be runs: the source itself, or those one level below it.

    Raises:
        UserError: there is no such directory.
    """
    if not source.is_dir():
        raise UserError(str(source), "is not a directory", "name a sweep's directory")
    if _is_run(source):
        return [str(source.resolve())]
    root = str(source.resolve())
    with os.scandir(root) as entries:
        names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    return [f"{root}/{name}" for name in sorted(names)]


def holds_runs(source: Path) -> bool:
    """Whether a directory is a run or a sweep with one."""
    return any(_is_run(Path(p)) for p in _candidates(source))


def _no_runs(source: Path) -> UserError:
    below = sorted(p.parent.parent for p in source.glob(f"*/*/{IDENTITY_FILE}"))
    below = below or sorted(p.parent.parent for p in source.glob(f"*/*/{RECORD_FILE}"))
    names = list(dict.fromkeys(str(p) for p in below))[:5]
    remedy = (
        f"name one of the sweeps in it: {', '.join(names)}" if names else "name a sweep's directory"
    )
    return UserError(str(source), "holds no runs", remedy)


def _unfinished(path: Path, problems: list[Problem]) -> Unfinished | None:
    if not (path / IDENTITY_FILE).exists():
        return None  # not a run: tables, tracker files
    try:
        identity = read_identity(path)
        state = read_state(path) or State(state="queued")
    except (RecordError, OSError) as error:
        problems.append(Problem(str(path), str(error).removeprefix(f"{path}/")))
        return None
    return Unfinished(path, identity.variant, state)


def _drop_duplicates(frame: pd.DataFrame, problems: list[Problem]) -> pd.DataFrame:
    repeat = frame["repeat"].fillna(0.0)
    same_run = frame.assign(repeat=repeat).duplicated(["sweep", "config_id", "repeat"])
    twice = (same_run | frame.duplicated(["run_id"])).to_numpy()
    for i in twice.nonzero()[0]:
        message = f"run {frame['run_id'].iloc[i]} is there twice; the first one found is counted"
        problems.append(Problem(str(frame["where"].iloc[i]), message))
    return frame[~twice].reset_index(drop=True)


def join_chunks(
    chunks: Sequence[Chunk],
    problems: Iterable[Problem] = (),
    unfinished: Iterable[Unfinished] = (),
) -> Loaded:
    """Join chunks, count each run once, drop what cannot be, and add the derived columns."""
    found = [*problems, *(p for chunk in chunks for p in chunk.problems)]
    frame = without_impossible(_drop_duplicates(join(chunks), found), found)
    return Loaded(derive(frame), tuple(found), tuple(unfinished))


def from_records(records: Iterable[tuple[str, Any]], problems: Iterable[Problem] = ()) -> Loaded:
    """Records given as plain JSON values, each with where it came from."""
    builder = ChunkBuilder()
    for where, data in records:
        builder.add(where, data)
    return join_chunks([builder.finish()], problems)


def read_directories(sources: Sequence[Path], *, workers: int | None = None) -> Read:
    """Read every record below `sources`.

    Args:
        sources: sweep directories, or single run directories.
        workers: threads that read; None: one per core.

    Raises:
        UserError: a source is not a directory or holds no runs.
    """
    paths: dict[str, None] = {}
    for source in sources:
        found = _candidates(source)
        if not any(_is_run(Path(p)) for p in found):
            raise _no_runs(source)
        paths.update(dict.fromkeys(found))
    results = _read_all(list(paths), workers or len(os.sched_getaffinity(0)))
    problems: list[Problem] = []
    waiting = [_unfinished(Path(p), problems) for _, without in results for p in without]
    return Read([c for c, _ in results], problems, [w for w in waiting if w is not None])


def load(sources: Sequence[Path], *, workers: int | None = None) -> Loaded:
    """The records below `sources` as one frame; arguments and errors of `read_directories`."""
    found = read_directories(sources, workers=workers)
    return join_chunks(found.chunks, found.problems, found.unfinished)
