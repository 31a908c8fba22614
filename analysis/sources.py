"""Where figures come from: sweep directories, imported CSV files, W&B; all become one frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.columns import Chunk, Problem
from analysis.load import Loaded, Unfinished, holds_runs, join_chunks, read_directories
from analysis.published import PUBLISHED, read_csv
from analysis.wandb_offline import find, read_offline
from analysis.wandb_source import PREFIX, read_project
from sweeper.errors import UserError


def read(sources: Sequence[str], *, published: bool = False) -> Loaded:
    """Read every source.

    Args:
        sources: directories of sweeps or runs; `wandb:entity/project`, or a directory of W&B's
            offline runs; CSV files in the import format.
        published: also the published measurements that come with the program.

    Raises:
        UserError: a source cannot be read at all, or there is none.
    """
    chunks: list[Chunk] = []
    problems: list[Problem] = []
    unfinished: list[Unfinished] = []
    directories: list[Path] = []
    chunks += [read_csv(PUBLISHED)] if published else []
    for source in sources:
        path = Path(source)
        if source.startswith(PREFIX):
            chunks.append(read_project(source.removeprefix(PREFIX)))
        elif source.endswith(".csv") and not path.is_dir():
            chunks.append(read_csv(path))
        elif path.is_dir() and not holds_runs(path) and find(path):
            chunks.append(read_offline(path))
        else:
            directories.append(path)
    if not sources and not published:
        raise UserError("DIR", "is missing", "name a sweep's directory, or use --published")
    if directories:
        found = read_directories(directories)
        chunks += found.chunks
        problems += found.problems
        unfinished += found.unfinished
    return join_chunks(chunks, problems, unfinished)
