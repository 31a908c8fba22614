"""W&B's libraries, imported so that they ask only the server that was named."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from sweeper.errors import UserError

REMEDY = "pip install 'sweeper[dashboard]'"


def wandb_module(mode: str = "online") -> Any:
    """`wandb`, without its error reports to its makers.

    Args:
        mode: where it is `offline`, no server is looked for.
    """
    # Both are read while wandb is imported.
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    os.environ["WANDB_MODE"] = mode
    import wandb

    return wandb


def views_module() -> ModuleType:
    """`analysis.dashboard.views`, which needs wandb-workspaces.

    Raises:
        UserError: wandb-workspaces is not installed.
    """
    wandb_module()
    try:
        from analysis.dashboard import views
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "wandb_workspaces":
            raise
        raise UserError("dashboard", "wandb-workspaces is not installed", REMEDY) from error
    return views
