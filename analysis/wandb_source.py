"""Runs mirrored to Weights & Biases: one listing per page, none per run.

The tracker puts the whole record into a run's summary, so that what comes from W&B equals what lies
in the run directories. A run of another program has none; its config and state are taken, so that
it can be grouped, and its figures are absent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from analysis.columns import Chunk, ChunkBuilder, Problem
from analysis.dashboard.keys import REPORT_JOB
from sweeper.errors import UserError
from sweeper.record import SCHEMA_VERSION, Status

PREFIX = "wandb:"
RECORD_KEY = "record"  # of the summary; written by the tracker

# Runs in one listing. More is fewer calls; a record is about 5 kB.
PER_PAGE = 100

# W&B's word for how a run ended -> ours.
_STATES = {
    "finished": Status.COMPLETED,
    "failed": Status.FAILED,
    "crashed": Status.KILLED,
    "killed": Status.CANCELLED,
    "preempted": Status.KILLED,
}


class MirroredRun(NamedTuple):
    """What the analysis needs of a W&B run, wherever it was read."""

    id: str
    group: str | None
    state: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any]


class Listing(Protocol):
    """The part of `wandb.Api` that is used."""

    def runs(self, path: str, *, per_page: int, lazy: bool) -> Any: ...


def _own_config(config: Mapping[str, Any]) -> Any:
    """The resolved config where our tracker wrote it, else all of what the run has."""
    inner = config.get("config")
    return inner if isinstance(inner, dict) else dict(config)


def _foreign(run: MirroredRun, status: Status, seen: dict[str, int]) -> dict[str, Any]:
    """A run without a record, as a record without figures."""
    text = json.dumps(_own_config(run.config), sort_keys=True, default=str)
    config_id = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    repeat = seen[config_id] = seen.get(config_id, -1) + 1
    failed = {"type": "W&B", "message": f"W&B says {run.state}; it left no record"}
    return {
        "schema_version": SCHEMA_VERSION,
        "identity": {
            "sweep": run.group or "ungrouped",
            "run_id": run.id,
            "config_id": config_id,
            "repeat": repeat,
            "variant": str(run.config.get("variant", "")),
        },
        "status": str(status),
        "error": None if status is Status.COMPLETED else failed,
        "config": _own_config(run.config),
    }


def to_chunk(runs: Iterable[MirroredRun], place: str) -> Chunk:
    """Runs as columns, each id once.

    Args:
        place: what the messages name.
    """
    builder = ChunkBuilder()
    seen: dict[str, int] = {}
    unfinished: list[str] = []
    for run in runs:
        where = f"{place}/{run.id}"
        if run.config.get("job") == REPORT_JOB:
            continue  # tables and figures of a sweep, no run of it
        text = run.summary.get(RECORD_KEY)
        if isinstance(text, str):
            try:
                builder.add(where, json.loads(text))
            except ValueError as error:
                builder.problems.append(Problem(where, f"its record is not readable ({error})"))
        elif run.state in _STATES:
            builder.add(where, _foreign(run, _STATES[run.state], seen))
        else:
            unfinished.append(run.id)
    if unfinished:
        some = ", ".join(unfinished[:5]) + (" ..." if len(unfinished) > 5 else "")
        builder.problems.append(Problem(place, f"{len(unfinished)} runs have not ended: {some}"))
    return builder.finish()


def _listed(listing: Any, place: str, problems: list[Problem]) -> list[MirroredRun]:
    """Every run once; pages that shift while they are read repeat some runs and miss others."""
    found: dict[str, MirroredRun] = {}
    repeated = 0
    for run in listing:
        if run.id in found:
            repeated += 1
            continue
        found[run.id] = MirroredRun(
            run.id, getattr(run, "group", None), run.state, run.config, run.summary_metrics
        )
    missing = len(listing) - len(found)
    if repeated or missing > 0:
        told = f"the listing repeats {repeated} runs, and {max(missing, 0)} are missing"
        problems.append(Problem(place, f"{told}; read it again when no run starts or ends"))
    return list(found.values())


def _api() -> Listing:
    # Read while wandb is imported: it would otherwise report to its server.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        import wandb

        return wandb.Api(timeout=60)
    except Exception as error:
        raise UserError("wandb", f"no connection: {_first_line(error)}", _LOGIN) from error


_LOGIN = "log in with `wandb login`, and set WANDB_BASE_URL for a server of your own"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


def read_project(path: str, api: Listing | None = None) -> Chunk:
    """Every run of a project.

    Args:
        path: `entity/project`, or `project` of the default entity.
        api: a `wandb.Api`; None: one with the user's settings.

    Raises:
        UserError: no connection, or no such project.
    """
    place = f"{PREFIX}{path}"
    problems: list[Problem] = []
    listing = api or _api()
    try:
        runs = _listed(listing.runs(path, per_page=PER_PAGE, lazy=False), place, problems)
    except Exception as error:  # the client raises its own, requests' and plain ValueError
        raise UserError(
            place, f"cannot be read: {_first_line(error)}", "check entity/project, and wandb login"
        ) from error
    if not runs:
        raise UserError(place, "holds no runs", "check entity/project")
    chunk = to_chunk(runs, place)
    chunk.problems[:0] = problems
    return chunk
