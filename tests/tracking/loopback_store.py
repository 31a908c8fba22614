"""What the loopback W&B server knows: runs, their rows and files, projects and saved views."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ENTITY = "local"

HISTORY, EVENTS, SUMMARY = "wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json"

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, wanted: found == wanted,
    "$ne": lambda found, wanted: found != wanted,
    "$in": lambda found, wanted: found in wanted,
    "$nin": lambda found, wanted: found not in wanted,
    "$exists": lambda found, wanted: (found is not None) == wanted,
    "$gt": lambda found, wanted: found is not None and found > wanted,
    "$gte": lambda found, wanted: found is not None and found >= wanted,
    "$lt": lambda found, wanted: found is not None and found < wanted,
    "$lte": lambda found, wanted: found is not None and found <= wanted,
}


@dataclass
class LoggedRun:
    """One run as its client sent it."""

    entity: str
    project: str
    id: str
    fields: dict[str, Any] = field(default_factory=dict)  # displayName, groupName, config, ...
    lines: dict[str, dict[int, str]] = field(default_factory=dict)  # stream file -> offset -> line
    files: dict[str, bytes] = field(default_factory=dict)
    state: str = "running"
    exit_code: int | None = None
    created_at: str = field(
        default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    )

    @property
    def node_id(self) -> str:
        return base64.b64encode(f"{self.entity}/{self.project}/{self.id}".encode()).decode()

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.lines.get(name, {}).items())]

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.rows(HISTORY)

    @property
    def summary(self) -> dict[str, Any]:
        sent = self.rows(SUMMARY)
        return sent[-1] if sent else json.loads(self.fields.get("summaryMetrics") or "{}")

    @property
    def config(self) -> dict[str, Any]:
        tree = json.loads(self.fields.get("config") or "{}")
        return {key: item["value"] for key, item in tree.items() if key != "_wandb"}

    def lookup(self, key: str) -> Any:
        """The value that a filter or an order names, e.g. `config.precision.value` or `group`."""
        head, _, rest = key.partition(".")
        tree: Any = {"config": self.config, "summary_metrics": self.summary}.get(head)
        if tree is None:
            known = {"group": "groupName", "displayName": "displayName", "tags": "tags"}
            plain = {"state": self.state, "name": self.id, "jobType": self.fields.get("jobType")}
            return plain[key] if key in plain else self.fields.get(known.get(key, ""))
        if rest in tree:
            return tree[rest]
        for part in rest.removesuffix(".value").split("."):
            tree = tree.get(part) if isinstance(tree, dict) else None
        return tree

    def matches(self, wanted: dict[str, Any]) -> bool:
        """Whether the run passes a MongoDB-like filter."""
        for key, condition in wanted.items():
            if key in ("$and", "$or"):
                combine = all if key == "$and" else any
                if not combine(self.matches(part) for part in condition):
                    return False
                continue
            tests = condition if isinstance(condition, dict) else {"$eq": condition}
            if not all(_COMPARE[name](self.lookup(key), value) for name, value in tests.items()):
                return False
        return True


@dataclass
class Store:
    """Everything the server keeps, in memory."""

    url: str = ""
    runs: dict[str, LoggedRun] = field(default_factory=dict)  # "entity/project/id" -> run
    projects: set[str] = field(default_factory=set)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)  # workspaces and reports

    def key(self, variables: dict[str, Any]) -> str:
        """The run that an operation's variables name; clients spell them in several ways."""
        entity = variables.get("entity") or variables.get("entityName") or ENTITY
        project = variables.get("project") or variables.get("projectName") or "uncategorized"
        names = (variables.get(name) for name in ("name", "run", "runName", "runId"))
        run = next(filter(None, names), None)
        if run is None and variables.get("id"):
            return base64.b64decode(variables["id"]).decode()
        return f"{entity}/{project}/{run}"

    def find(self, variables: dict[str, Any]) -> LoggedRun | None:
        return self.runs.get(self.key(variables))

    def get(self, variables: dict[str, Any]) -> LoggedRun:
        return self.runs[self.key(variables)]

    def upsert(self, variables: dict[str, Any]) -> tuple[LoggedRun, bool]:
        """Create or update a run; returns it and whether it is new."""
        key = self.key(variables)
        inserted = key not in self.runs
        run = self.runs.setdefault(key, LoggedRun(*key.split("/", 2)))
        run.fields.update({name: value for name, value in variables.items() if value is not None})
        run.state = variables.get("state") or "running"
        return run, inserted

    def append(self, key: str, request: dict[str, Any]) -> None:
        """Take one message of a run's file stream."""
        run = self.runs[key]
        for name, chunk in (request.get("files") or {}).items():
            lines = run.lines.setdefault(name, {})
            lines.update({chunk["offset"] + i: line for i, line in enumerate(chunk["content"])})
        if request.get("complete"):
            run.exit_code = request.get("exitcode")
            run.state = "finished" if run.exit_code == 0 else "failed"
