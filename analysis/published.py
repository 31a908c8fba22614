"""Measurements of others, imported from CSV: the same frame, with `source` = imported.

`docs/import-format.md` describes the columns. Rows of one origin that say the same about everything
that they describe are repeats of one configuration; their order says nothing, so that means are
compared, not pairs. Rows of different origins are never compared.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.columns import Chunk, ChunkBuilder, Problem
from sweeper.errors import UserError
from sweeper.record import SCHEMA_VERSION, Status

PUBLISHED = Path(__file__).parent / "data" / "published_measurements.csv"

REQUIRED = ("source", "model")
COLUMNS = (
    *REQUIRED,
    "location",
    "parameters",
    "input",
    "micro_batch",
    "accumulation",
    "gpus",
    "global_batch",
    "gpu",
    "precision",
    "ckpt",
    "optimizer",
    "ema",
    "setup",
    "memory",
    "memory_unit",
    "memory_kind",
    "step_time_s",
    "samples_per_s",
    "status",
    "quality",
    "notes",
)

# GB is decimal and GiB is binary: they differ by 7 %.
UNITS = {"B": 1, **{f"{p}B": 1000**i for i, p in enumerate("kMGT", 1)}}
UNITS |= {f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}

# Kind of memory -> field of the record. A kind that is unknown is compared with its like alone.
_KINDS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "nvidia-smi": "peak_device_bytes",
    "unknown": "peak_device_bytes",
}

_SIZE = re.compile(r"(?P<bound>[<>]=?)?\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKMGT]?i?B)?")


def parse_bytes(text: str, unit: str = "") -> tuple[int, bool]:
    """A size with its unit, `41.80 GB` or `28.53` with unit `GiB`, and whether it is a bound.

    Raises:
        ValueError: no number, no unit, or an unknown one.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"memory {text!r} is not a size")
    name = found["unit"] or unit
    if name not in UNITS:
        raise ValueError(f"memory {text!r} has no known unit; use one of {', '.join(UNITS)}")
    return round(float(found["number"]) * UNITS[name]), found["bound"] is not None


def _number(row: dict[str, str], name: str) -> float | None:
    text = row.get(name, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a number") from None


def _whole(row: dict[str, str], name: str) -> int | None:
    number = _number(row, name)
    if number is not None and not number.is_integer():
        raise ValueError(f"{name} {row[name]!r} is not a whole number")
    return None if number is None else int(number)


def _memory(row: dict[str, str], status: Status) -> tuple[dict[str, int], str | None]:
    """The peak by kind, and what a run that ran out of memory held: a bound, not a peak."""
    text = row.get("memory", "")
    if not text or text.upper() == "OOM":
        return {}, None
    size, bound = parse_bytes(text, row.get("memory_unit", ""))
    if bound or status is Status.OOM:
        return {}, f"it held {size / 2**30:.2f} GiB: a lower bound"
    kind = row.get("memory_kind") or "unknown"
    if kind not in _KINDS:
        raise ValueError(f"memory_kind {kind!r}: use one of {', '.join(_KINDS)}")
    return {_KINDS[kind]: size}, None


def _status(row: dict[str, str]) -> Status:
    if row.get("memory", "").upper() == "OOM":
        return Status.OOM
    return Status(row.get("status") or "completed")


def to_record(row: dict[str, str], seen: dict[str, int]) -> dict[str, Any]:
    """One row as a record's plain JSON values.

    Args:
        row: column -> text, empty where unknown.
        seen: how often each configuration came before; counted on.

    Raises:
        ValueError: a value cannot be read; the message names it.
    """
    status = _status(row)
    peaks, bound = _memory(row, status)
    micro, gpus = _whole(row, "micro_batch"), _whole(row, "gpus")
    accumulation = _whole(row, "accumulation") or 1
    batch = _whole(row, "global_batch")
    if batch is None and micro is not None and gpus is not None:
        batch = micro * accumulation * gpus
    choices = {k: row[k] for k in ("model", "precision", "ckpt") if row.get(k)}
    config: dict[str, Any] = {
        "origin": row["source"],
        "batch": {"size": batch, "per_gpu": None if micro is None else micro * accumulation},
        "accum": {"steps": accumulation},
        "gpus": {"count": gpus},
    }
    for key in ("input", "optimizer", "ema", "setup"):
        config[key] = row.get(key) or None
    text = json.dumps([choices, config, row.get("gpu")], sort_keys=True)
    config_id = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    repeat = seen[config_id] = seen.get(config_id, -1) + 1
    keep = ("location", "memory_kind", "quality", "notes")
    config["import"] = {key: row.get(key) or None for key in keep}
    if peaks and config["import"]["memory_kind"] is None:
        config["import"]["memory_kind"] = "unknown"
    return {
        "schema_version": SCHEMA_VERSION,
        "source": "imported",
        "identity": {
            "sweep": row["source"],
            "run_id": f"{config_id}-{repeat}",
            "config_id": config_id,
            "repeat": repeat,
            "choices": choices,
        },
        "status": str(status),
        "error": _error(status, bound),
        "config": config,
        "memory": {"warm": peaks},
        "time": {
            "step_time_s": _number(row, "step_time_s"),
            "samples_per_s": _number(row, "samples_per_s"),
        },
        "numerics": {
            "precision": row.get("precision") or None,
            "parameters": _whole(row, "parameters"),
            "global_batch": batch,
            "micro_batch": micro,
            "accumulation": accumulation,
        },
        "hardware": {"device": "cuda", "device_name": row.get("gpu") or None, "world_size": gpus},
        "warnings": [bound] if bound else [],
    }


def _error(status: Status, bound: str | None) -> dict[str, str] | None:
    if status is Status.COMPLETED:
        return None
    told = "out of memory" if status is Status.OOM else str(status)
    return {"type": str(status), "message": f"{told}; {bound}" if bound else told}


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            missing = [name for name in REQUIRED if name not in names]
            unknown = [name for name in names if name not in COLUMNS]
            if missing or unknown:
                problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
                raise UserError(
                    str(path), f"{problem}: not the import format", "see docs/import-format.md"
                )
            for row in reader:
                yield reader.line_num, {k: (v or "").strip() for k, v in row.items() if k}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(str(path), f"cannot be read ({error})", "name a CSV file") from error


def read_csv(path: Path) -> Chunk:
    """Rows of one file; a row that cannot be read becomes a problem.

    Raises:
        UserError: the file cannot be read, or its columns are not those of the format.
    """
    builder = ChunkBuilder()
    seen: dict[str, int] = {}
    for line, row in _rows(path):
        where = f"{path.name}:{line}"
        try:
            builder.add(where, to_record(row, seen))
        except ValueError as error:
            builder.problems.append(Problem(where, str(error)))
    return builder.finish()
