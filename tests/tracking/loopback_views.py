"""The GraphQL operations of saved views: workspaces, reports and the projects they lie in."""

from __future__ import annotations

from loopback_graphql import Answer, Variables, operation
from loopback_store import ENTITY, Store

_CREATED_AT = "2026-01-01T00:00:00Z"


@operation("UpsertView2", "upsertView")
def upsert_view(store: Store, variables: Variables) -> Answer:
    key = variables.get("id") or f"view{len(store.views)}"
    inserted = key not in store.views
    store.views[key] = {
        "id": key,
        "type": variables.get("type"),
        "name": variables.get("name"),
        "displayName": variables.get("displayName"),
        "description": variables.get("description") or "",
        "project": {
            "id": "project",
            "name": variables["projectName"],
            "entityName": variables["entityName"],
        },
        "spec": variables["spec"],
        "createdAt": _CREATED_AT,
        "updatedAt": _CREATED_AT,
    }
    return {"upsertView": {"view": store.views[key], "inserted": inserted}}


@operation("SpecificReport")
def report(store: Store, variables: Variables) -> Answer:
    return {"view": store.views.get(variables["reportId"])}


@operation("View")
def views(store: Store, variables: Variables) -> Answer:
    found = [view for view in store.views.values() if view["name"] == variables["viewName"]]
    return {"project": {"allViews": {"edges": [{"node": view} for view in found]}}}


@operation("ProjectInternalId")
def project_id(store: Store, variables: Variables) -> Answer:
    return {"project": {"id": "project", "internalId": "project"}}


@operation("GetProjects")
def projects(store: Store, variables: Variables) -> Answer:
    entity = variables.get("entity") or ENTITY
    names = {run.project for run in store.runs.values() if run.entity == entity}
    edges = [
        {
            "cursor": name,
            "node": {
                "__typename": "Project",
                "id": "project",
                "name": name,
                "entityName": entity,
                "createdAt": _CREATED_AT,
                "isBenchmark": False,
                "user": None,
            },
        }
        for name in sorted(names | store.projects)
    ]
    info = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"models": {"pageInfo": info, "edges": edges}}


@operation("CreateProject")
def create_project(store: Store, variables: Variables) -> Answer:
    wanted = variables["input"]
    name = wanted.get("name") or wanted.get("modelName")
    store.projects.add(name)
    node = {
        "id": "project",
        "name": name,
        "entityName": wanted.get("entityName") or ENTITY,
        "description": None,
        "access": None,
        "views": None,
    }
    return {"result": {"project": node, "model": node, "inserted": True}}
