"""Mirrors a run to Weights & Biases, offline by default."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sweeper.errors import UserError
from sweeper.record import Identity, Status
from sweeper.tracking.base import DegradedError

STEP = "train/step"  # x axis of every series

_LONGEST_NAME = 128  # characters, the server's limit
_NOT_IN_PROJECT = "/\\#?%:"


def _number(text: str) -> str | int | float:
    """Names of options that are numbers become numbers, so that they can be an axis."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def flat_config(identity: Identity, config: dict[str, Any]) -> dict[str, Any]:
    """The W&B config: flat keys to group and filter by, and the whole config under `config`.

    The config's own groups are trees (`precision.name`, `precision.compute`), which W&B's panels
    cannot group by; the chosen option of each group (`precision: amp`) is the flat key.
    """
    choices = {name: _number(value) for name, value in identity.choices.items()}
    return {
        **choices,
        "variant": identity.variant,
        "config_id": identity.config_id,
        "repeat": identity.repeat,
        "command": identity.command,
        "config": config,
    }


class WandbTracker:
    """One W&B run for a run: group = sweep, id = run id, name = variant.

    Online, where there is no key or no server, it writes offline instead; `wandb sync` sends what
    lies in the run's `wandb/` directory later. Attempts of a run become one W&B run.

    Args:
        project: W&B project.
        entity: W&B user or team; None = the user's default.
        mode: `offline` (files only, no network) or `online`.
        tags: labels of the W&B run.
        timeout_s: longest wait for the server at the start, and again at the end, seconds.

    Raises:
        UserError: an argument is wrong.
    """

    def __init__(
        self,
        project: str = "sweeper",
        entity: str | None = None,
        mode: Literal["offline", "online"] = "offline",
        tags: Sequence[str] = (),
        timeout_s: float = 10.0,
    ) -> None:
        if mode not in ("offline", "online"):
            raise UserError(
                "tracker.mode",
                f"unknown value {mode!r}",
                "use offline or online; tracker=none for none",
            )
        if not project or any(c in project for c in _NOT_IN_PROJECT):
            raise UserError(
                "tracker.project",
                f"{project!r} is not a name that W&B accepts",
                f"use a name without {' '.join(_NOT_IN_PROJECT)}",
            )
        if timeout_s <= 0:
            raise UserError("tracker.timeout_s", f"{timeout_s} is not possible", "use 1 or more")
        self._project = project
        self._entity = entity
        self._mode = mode
        self._tags = list(tags)
        self._timeout_s = timeout_s
        self._run: Any = None
        self._directory = Path()

    def start(self, identity: Identity, config: dict[str, Any], run_dir: Path) -> None:
        environ = os.environ
        # Read while wandb is imported: offline, it would otherwise still look for its server.
        environ["WANDB_MODE"] = self._mode
        environ["WANDB_ERROR_REPORTING"] = "false"
        environ["WANDB_SILENT"] = "true"
        environ.pop("WANDB_SERVICE", None)  # a service shared with another process could hang us
        import wandb

        # What W&B shows as the command is the run's, not that of the process that mirrors it.
        sys.argv = shlex.split(identity.command)[1:] or sys.argv
        label = identity.variant or identity.run_id
        if identity.repeat:
            label += f"+repeat={identity.repeat}"
        arguments: dict[str, Any] = {
            "project": self._project,
            "entity": self._entity,
            "group": identity.sweep,
            "id": identity.run_id,
            "resume": "allow",
            "name": label[:_LONGEST_NAME],
            "job_type": str(config.get("mode", "train")),
            "tags": self._tags,
            "config": flat_config(identity, config),
            "dir": str(run_dir),
        }
        self._directory = run_dir / "wandb"
        before = self._fragments()
        try:
            self._run = wandb.init(**arguments, mode=self._mode, settings=self._settings())
        except Exception as error:
            if self._mode == "offline":
                raise
            # The service still holds the failed run's id, and its files hold nothing.
            wandb.teardown()
            for path in self._fragments() - before:
                shutil.rmtree(path, ignore_errors=True)
            environ["WANDB_MODE"] = "offline"
            self._run = wandb.init(**arguments, mode="offline", settings=self._settings())
            self._define_axis()
            reason = str(error).partition("\n")[0]
            raise DegradedError(
                f"not online ({reason}); written offline, `wandb sync {self._directory}` sends it"
            ) from error
        self._define_axis()

    def _settings(self) -> Any:
        import wandb

        wanted: dict[str, Any] = {
            "silent": True,
            "console": "off",
            "disable_git": True,
            "save_code": False,
            "disable_code": True,
            "init_timeout": self._timeout_s,
            "finish_timeout": self._timeout_s,
            "finish_timeout_raises": True,
            "program": sys.argv[0],
            "x_save_requirements": False,
            "x_stats_sampling_interval": 30.0,
            "x_stats_pid": os.getppid(),  # the run, not the process that mirrors it
            "x_transaction_log_flush_interval": 1.0,  # what a killed run leaves on disk
        }
        known = wandb.Settings.model_fields
        return wandb.Settings(**{key: value for key, value in wanted.items() if key in known})

    def _define_axis(self) -> None:
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log({**values, STEP: step})

    def summary(self, values: dict[str, Any]) -> None:
        self._run.summary.update(values)

    def finish(self, status: Status) -> None:
        self._run.summary["status"] = status.value
        try:
            self._run.finish(exit_code=int(status.is_failure))
        except TimeoutError as error:
            raise TimeoutError(
                f"the server did not take everything within {self._timeout_s:g} s; "
                f"`wandb sync --no-skip-online {self._directory}` sends the rest"
            ) from error

    def _fragments(self) -> set[Path]:
        """The directories that W&B has written, one for each start of the run."""
        return set(self._directory.glob("*run-*"))
