"""The GraphQL operations that W&B's client sends, answered from the store."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from loopback_store import ENTITY, EVENTS, HISTORY, LoggedRun, Store

Variables = dict[str, Any]
Answer = dict[str, Any]
Operation = Callable[[Store, Variables], Answer]
OPERATIONS: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def _one_page(edges: list[dict[str, Any]]) -> Answer:
    return {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}


def _sampled(rows: list[Any], count: int) -> list[Any]:
    if len(rows) <= count:
        return rows
    return [rows[round(i * (len(rows) - 1) / max(count - 1, 1))] for i in range(count)]


def _with_keys(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in keys} for row in rows if all(key in row for key in keys)]


# ---- logging: wandb.init, log, finish, sync ----


@operation("Viewer", "GetDefaultEntity")
def viewer(store: Store, variables: Variables) -> Answer:
    team = {"node": {"name": ENTITY}}
    return {
        "viewer": {
            "id": "user",
            "entity": ENTITY,
            "username": ENTITY,
            "name": ENTITY,
            "email": "local@localhost",
            "flags": "{}",
            "admin": False,
            "apiKeys": {"edges": []},
            "teams": {"edges": [team]},
        }
    }


@operation("ServerFeaturesQuery")
def server_features(store: Store, variables: Variables) -> Answer:
    return {"serverInfo": {"features": []}}


@operation("OrganizationCoreWeaveOrganizationID")
def organization(store: Store, variables: Variables) -> Answer:
    return {"entity": {"organization": None}}


@operation("RunStoppedStatus")
def stopped(store: Store, variables: Variables) -> Answer:
    return {"project": {"run": {"stopped": False}}}


def _project(run: LoggedRun) -> Answer:
    return {"id": "project", "name": run.project, "entity": {"id": "entity", "name": run.entity}}


@operation("UpsertBucket")
def upsert_run(store: Store, variables: Variables) -> Answer:
    run, inserted = store.upsert(variables)
    bucket = {
        "id": run.node_id,
        "name": run.id,
        "displayName": run.fields.get("displayName") or run.id,
        "description": None,
        "config": run.fields.get("config"),
        "sweepName": None,
        "historyLineCount": len(run.lines.get(HISTORY, {})),
        "project": _project(run),
    }
    return {"upsertBucket": {"inserted": inserted, "bucket": bucket}}


@operation("RunResumeStatus")
def resume_status(store: Store, variables: Variables) -> Answer:
    project = variables.get("project")
    entity = {"id": "entity", "name": variables.get("entity") or ENTITY}
    run = store.find(variables)
    bucket = run and {
        "id": run.node_id,
        "name": run.id,
        "displayName": run.fields.get("displayName"),
        "config": run.fields.get("config") or "{}",
        "summaryMetrics": json.dumps(run.summary),
        "tags": run.fields.get("tags") or [],
        "notes": run.fields.get("notes"),
        "wandbConfig": json.dumps({"t": 1}),
        "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
        "eventsTail": json.dumps([json.dumps(row) for row in run.rows(EVENTS)[-1:]]),
        "logLineCount": len(run.lines.get("output.log", {})),
        "historyLineCount": len(run.lines.get(HISTORY, {})),
        "eventsLineCount": len(run.lines.get(EVENTS, {})),
    }
    return {"model": {"id": "project", "name": project, "entity": entity, "bucket": bucket}}


@operation("CreateRunFiles")
def create_files(store: Store, variables: Variables) -> Answer:
    run = store.get(variables)
    base = f"{store.url}/storage/{run.entity}/{run.project}/{run.id}"
    files = [{"name": name, "uploadUrl": f"{base}/{name}"} for name in variables["files"]]
    return {"createRunFiles": {"runID": run.node_id, "uploadHeaders": [], "files": files}}


@operation("ArtifactType")
def artifact_type(store: Store, variables: Variables) -> Answer:
    return {"project": {"artifact": None}}


@operation("CreateArtifact")
def create_artifact(store: Store, variables: Variables) -> Answer:
    # Claimed to be committed already, so that the client uploads nothing.
    artifact = base64.b64encode(variables["input"]["digest"].encode()).decode()
    latest = {"latestArtifact": {"id": artifact}}
    committed = {"id": artifact, "state": "COMMITTED", "artifactSequence": latest}
    return {"createArtifact": {"artifact": committed}}


# ---- reading: wandb.Api ----


def _run_node(run: LoggedRun) -> Answer:
    history, events = run.history, run.rows(EVENTS)
    counts = [{"type": "number", "count": len(history)}]
    keys = sorted({key for row in history for key in row})
    return {
        "id": run.node_id,
        "name": run.id,
        "displayName": run.fields.get("displayName") or run.id,
        "state": run.state,
        "group": run.fields.get("groupName"),
        "jobType": run.fields.get("jobType"),
        "tags": run.fields.get("tags") or [],
        "notes": run.fields.get("notes"),
        "commit": run.fields.get("commit"),
        "config": run.fields.get("config") or "{}",
        "summaryMetrics": json.dumps(run.summary),
        "systemMetrics": json.dumps(events[-1]) if events else "{}",
        "description": None,
        "sweepName": None,
        "readOnly": False,
        "createdAt": run.created_at,
        "heartbeatAt": run.created_at,
        "user": {"name": ENTITY, "username": ENTITY},
        "projectId": "1",
        "historyLineCount": len(history),
        "historyKeys": {
            "step": len(history),
            "lastStep": history[-1]["_step"] if history else -1,
            "sets": [],
            "keys": {key: {"typeCounts": counts, "monotonic": False} for key in keys},
        },
    }


@operation("Runs")
def runs(store: Store, variables: Variables) -> Answer:
    wanted = json.loads(variables.get("filters") or "{}")
    place = (variables["entity"], variables["project"])
    found = [run for run in store.runs.values() if (run.entity, run.project) == place]
    found = [run for run in found if run.matches(wanted)]
    order = (variables.get("order") or "+created_at").split(",")[0]
    key = order.lstrip("+-")
    if key.partition(".")[0] in ("config", "summary_metrics"):
        found.sort(key=lambda run: (run.lookup(key) is None, run.lookup(key)))
    if order.startswith("-"):
        found.reverse()
    start = int(variables.get("cursor") or 0)
    page = found[start : start + (variables.get("perPage") or 50)]
    end = start + len(page)
    edges = [{"node": _run_node(run), "cursor": str(start + i)} for i, run in enumerate(page, 1)]
    info = {"endCursor": str(end), "hasNextPage": end < len(found)}
    listing = {"edges": edges, "pageInfo": info}
    return {
        "project": {"internalId": "1", "readOnly": False, "runCount": len(found), "runs": listing}
    }


@operation("Run", "RunState", "RunHistoryKeys")
def one_run(store: Store, variables: Variables) -> Answer:
    run = store.find(variables)
    return {"project": run and {"internalId": "1", "run": _run_node(run)}}


@operation("RunFullHistory")
def full_history(store: Store, variables: Variables) -> Answer:
    run, count = store.get(variables), variables.get("samples") or 500
    rows = {"history": run.history, "events": run.rows(EVENTS)}
    lines = {key: [json.dumps(row) for row in _sampled(rows[key], count)] for key in rows}
    return {"project": {"run": lines}}


@operation("RunSampledHistory")
def sampled_history(store: Store, variables: Variables) -> Answer:
    specs = [json.loads(spec) for spec in variables["specs"]]
    history = store.get(variables).history
    sampled = [
        _sampled(_with_keys(history, spec["keys"]), spec.get("samples", 500)) for spec in specs
    ]
    return {"project": {"run": {"sampledHistory": sampled}}}


@operation("RunParquetHistory")
def parquet_history(store: Store, variables: Variables) -> Answer:
    return {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": None}}}}


@operation("HistoryPage")
def history_page(store: Store, variables: Variables) -> Answer:
    first, end = variables["minStep"], variables["maxStep"]
    rows = [row for row in store.get(variables).history if first <= row["_step"] < end]
    return {"project": {"run": {"history": [json.dumps(row) for row in rows]}}}


@operation("SampledHistoryPage")
def sampled_history_page(store: Store, variables: Variables) -> Answer:
    spec = json.loads(variables["spec"])
    first, end = spec.get("minStep", 0), spec.get("maxStep", 1 << 60)
    rows = [row for row in store.get(variables).history if first <= row["_step"] < end]
    return {"project": {"run": {"sampledHistory": [_with_keys(rows, spec["keys"])]}}}


@operation("RunFiles")
def run_files(store: Store, variables: Variables) -> Answer:
    run = store.get(variables)
    edges = []
    for i, (name, content) in enumerate(sorted(run.files.items())):
        url = f"{store.url}/storage/{run.entity}/{run.project}/{run.id}/{name}"
        node = {
            "id": str(i),
            "name": name,
            "url": url,
            "directUrl": url,
            "sizeBytes": len(content),
            "mimetype": "text/plain",
            "updatedAt": run.created_at,
            "md5": "",
        }
        edges.append({"cursor": str(i), "node": node})
    return {
        "project": {"internalId": "1", "run": {"fileCount": len(edges), "files": _one_page(edges)}}
    }
