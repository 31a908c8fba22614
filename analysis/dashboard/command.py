"""`python -m analysis dashboard wandb:entity/project`: W&B views by code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from analysis.dashboard.client import views_module, wandb_module
from analysis.report import Report
from analysis.sources import read
from sweeper.errors import UserError

PREFIX = "wandb:"


def project_of(source: str) -> tuple[str, str]:
    """Entity and project of `wandb:entity/project`.

    Raises:
        UserError: it is not of that form.
    """
    entity, slash, project = source.removeprefix(PREFIX).partition("/")
    if not source.startswith(PREFIX) or not slash or not entity or not project or "/" in project:
        raise UserError(source, "is not a W&B project", "type it as wandb:entity/project")
    return entity, project


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "dashboard", help="make a W&B workspace and report; log tables and figures to W&B"
    )
    parser.add_argument("project", nargs="?", help="wandb:entity/project: where the views are made")
    parser.add_argument("--group", help="show one sweep alone (default: all of the project)")
    parser.add_argument(
        "--offline-spec",
        action="store_true",
        help="print both views as JSON; no server is asked",
    )
    parser.add_argument(
        "--log", type=Path, metavar="DIR", help="log this sweep's tables and figures to its group"
    )
    parser.add_argument(
        "--online", action="store_true", help="with --log: send at once (default: files for later)"
    )
    parser.set_defaults(function=run)


def run(options: argparse.Namespace) -> int:
    """Raises UserError where nothing was asked for, or the server refuses."""
    if options.project is None and options.log is None and not options.offline_spec:
        raise UserError("dashboard", "nothing to do", "name wandb:entity/project, or --log DIR")
    entity, project = project_of(options.project) if options.project else (None, "sweeper")
    if options.offline_spec:
        found = views_module().specs(entity or "entity", project, options.group)
        print(json.dumps(found, indent=1))
        return 0
    if options.log is not None:
        _log(options, entity, project)
    elif entity is not None:
        _save(entity, project, options.group)
    return 0


def _log(options: argparse.Namespace, entity: str | None, project: str) -> None:
    from analysis.dashboard.log import Mode, log_report

    report = Report(read([str(options.log)]))
    mode: Mode = "online" if options.online else "offline"
    where = log_report(
        report, options.log / "report-wandb", project=project, entity=entity, mode=mode
    )
    print(where if options.online else f"{where}\nsend it: wandb sync {where}")


def _save(entity: str, project: str, group: str | None) -> None:
    views = views_module()
    wandb = wandb_module()
    try:
        for view in (
            views.workspace(entity, project, group),
            views.report(entity, project, group),
        ):
            view.save()
            print(view.url)
    except (wandb.Error, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{PREFIX}{entity}/{project}",
            f"W&B did not take the view ({reason})",
            "check the name, and that `wandb login` was done",
        ) from error
