"""A W&B workspace and a W&B report, made by code."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from analysis.dashboard import keys
from analysis.dashboard.panels import columns, panels, wr

ws: Any = import_module("wandb_workspaces.workspaces")

TITLE = "Memory, time and loss by variant"


def workspace(entity: str, project: str, group: str | None = None) -> Any:
    """The saved view of a project.

    Args:
        group: show this sweep alone; None: every sweep of the project.
    """
    chosen = [ws.Metric("JobType") != keys.REPORT_JOB]
    if group is not None:
        chosen.append(ws.Metric("Group") == group)
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"{TITLE}: {group}" if group else TITLE,
        sections=[ws.Section(name=TITLE, is_open=True, panels=panels())],
        settings=ws.WorkspaceSettings(x_axis=keys.STEP, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=chosen,
            groupby=[ws.Config(name) for name in ("precision", "ckpt")],
            order=[ws.Ordering(ws.Summary(keys.PEAK.key), ascending=True)],
            pinned_columns=columns(),
        ),
    )


def report(entity: str, project: str, group: str | None = None, *, online: bool = True) -> Any:
    """The same panels as a page with an introduction.

    Args:
        online: name the project in the set of runs; W&B's library then asks the server about it.
    """
    where = {"entity": entity, "project": project} if online else {}
    runs = wr.Runset(
        **where,
        name=group or "all sweeps",
        filters=f'Group == "{group}"' if group else "",
        groupby=[f"config.{keys.VARIANT}"],
        pinned_columns=columns(),
        order=[wr.OrderBy(wr.SummaryMetric(keys.PEAK.key), ascending=True)],
    )
    of_what = f"sweep {group}" if group else f"all sweeps of {project}"
    return wr.Report(
        project=project,
        entity=entity,
        title=f"{TITLE}: {group}" if group else TITLE,
        description=f"Made from {of_what}.",
        width="fluid",
        blocks=[
            wr.H1(TITLE),
            wr.P(
                f"What each variant of {of_what} costs. Memory is the peak of the steady state, "
                "largest over ranks; the step time is the median of the measured window."
            ),
            wr.PanelGrid(runsets=[runs], panels=panels()),
        ],
    )


def _spec(view: Any) -> dict[str, Any]:
    # The library has no public way to a specification without a server.
    model = view._to_model()
    found: dict[str, Any] = model.spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    return found


def specs(entity: str, project: str, group: str | None = None) -> dict[str, Any]:
    """Both views as JSON values, made without a server."""
    return {
        "workspace": _spec(workspace(entity, project, group)),
        "report": _spec(report(entity, project, group, online=False)),
    }
