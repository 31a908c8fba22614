"""W&B's offline run folders, read without a server.

A `run-<id>.wandb` file is a log in the framing of LevelDB: a header of 7 bytes (`:W&B`, 0xBEE1,
version 0), then blocks of 32 KiB with chunks of `checksum, length, type, data`, where type is 1 for
a whole entry and 2, 3, 4 for its first, middle and last part. Entries are wandb's protobuf records.
The tail of a killed run may be cut off; what is whole before it is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.columns import Chunk, Problem
from analysis.wandb_source import MirroredRun, to_chunk

_BLOCK = 32 * 1024
_HEADER = struct.Struct("<IHB")  # checksum, length, type
_FILE_HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

# Where run files may lie below a directory that is named.
_PLACES = (
    "run-*.wandb",
    "*run-*/run-*.wandb",
    "wandb/*run-*/run-*.wandb",
    "*/wandb/*run-*/run-*.wandb",
)


def find(directory: Path) -> list[Path]:
    """The run files below a directory, sorted."""
    return sorted({path for place in _PLACES for path in directory.glob(place)})


def entries(path: Path) -> Iterator[bytes]:
    """The log's entries, up to its end or to where it was cut off.

    Raises:
        ValueError: it is no such log, or damaged.
    """
    data = path.read_bytes()
    if not data.startswith(_FILE_HEADER):
        raise ValueError("not a W&B run file")
    position, collected = len(_FILE_HEADER), b""
    while position + _HEADER.size <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:
            position += left
            continue
        _, length, kind = _HEADER.unpack_from(data, position)
        if kind == 0:  # the rest of the block is padding
            position += left
            continue
        start = position + _HEADER.size
        part = data[start : start + length]
        if len(part) < length:
            return
        position = start + length
        if kind == _WHOLE:
            yield part
        elif kind == _FIRST:
            collected = part
        elif kind == _MIDDLE:
            collected += part
        elif kind == _LAST:
            yield collected + part
        else:
            raise ValueError(f"damaged at byte {start}")


def _put(tree: dict[str, Any], item: Any) -> None:
    path = list(item.nested_key) or [item.key]
    for key in path[:-1]:
        below = tree.get(key)
        if not isinstance(below, dict):
            below = tree[key] = {}
        tree = below
    tree[path[-1]] = json.loads(item.value_json)


def read_run(path: Path) -> MirroredRun:
    """One run file.

    Raises:
        ValueError: it is no run file, or damaged.
    """
    # Generated code and its library come without types. Imported here: it takes half a second.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    name, group, state = path.stem.removeprefix("run-"), None, "running"
    try:
        for data in entries(path):
            entry = Record.FromString(data)
            kind = entry.WhichOneof("record_type")
            if kind == "run":
                name, group = entry.run.run_id or name, entry.run.run_group or None
                for item in entry.run.config.update:
                    _put(config, item)
            elif kind == "config":
                for item in entry.config.update:
                    _put(config, item)
            elif kind == "summary":
                for item in entry.summary.update:
                    _put(summary, item)
            elif kind == "exit":
                state = "failed" if entry.exit.exit_code else "finished"
    except (DecodeError, OSError) as error:
        raise ValueError(f"damaged ({error})") from error
    config.pop("_wandb", None)
    return MirroredRun(name, group, state, config, summary)


def read_offline(directory: Path) -> Chunk:
    """Every run below a directory; of several attempts of one run the last is taken."""
    problems = []
    runs: dict[str, MirroredRun] = {}
    for path in find(directory):
        try:
            run = read_run(path)
        except ValueError as error:
            problems.append(Problem(str(path), str(error)))
        else:
            runs[run.id] = run
    chunk = to_chunk(runs.values(), str(directory))
    chunk.problems[:0] = problems
    return chunk
