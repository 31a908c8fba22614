"""The command `train.py`: from the command line to the sweep's exit code.

Exit codes: 0 every run has a result (completed, oom, skipped), 1 a run failed, 2 wrong input and
nothing started, 130 cancelled by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from sweeper import counts
from sweeper.application import SweepApplication, task
from sweeper.complaints import Known, explain
from sweeper.config import Config
from sweeper.errors import UserError
from sweeper.launch.errors import Cancelled, RunFailed
from sweeper.overrides import arguments_of, prepare
from sweeper.sweep_place import new_name, sweep_name
from sweeper.typed_command import typed_program

WRONG_INPUT = 2
CANCELLED = 130


@dataclass
class Outcome:
    """What a command left behind."""

    exit_code: int
    sweep_dir: Path | None = None  # None where nothing was started


def register() -> None:
    """Make the schema and the resolver known to Hydra; needed before any composition."""
    ConfigStore.instance().store(name="sweeper_schema", node=Config, provider="sweeper")
    counts.register()
    OmegaConf.register_new_resolver("sweeper.new_name", new_name, replace=True)
    OmegaConf.register_new_resolver("sweeper.sweep_name", sweep_name, replace=True)


def _known(config_dir: Path, argv: Sequence[str]) -> Known:
    """The config's sources and default tree, for suggestions."""
    search_path = create_config_search_path(str(config_dir))
    extra = arguments_of(argv)[0].config_dir
    if extra is not None:
        search_path.prepend("command-line", f"file://{Path(extra).resolve()}")
    GlobalHydra.instance().clear()
    loader = Hydra.create_main_hydra2("train", search_path).config_loader
    try:
        tree = loader.load_configuration("config", [], RunMode.RUN)
    except Exception:  # suggestions are a courtesy: the first error is the one to report
        tree = None
    return Known(loader=loader, tree=tree)


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def run(argv: Sequence[str], config_dir: Path) -> Outcome:
    """Run the command line `argv` (without the program's name)."""
    config_dir = config_dir.resolve()
    register()
    # The user's own package is found from the directory the command is given in, too.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    application = SweepApplication(argv, typed_program(argv))
    try:
        sys.argv[1:] = prepare(argv)
        # Hydra then raises what it would print, so that one place here says it better.
        os.environ["HYDRA_FULL_ERROR"] = "1"
        main = hydra.main(version_base="1.3", config_path=str(config_dir), config_name="config")
        main(application.bind(task))()
    except UserError as error:
        _complain(str(error))
        return Outcome(WRONG_INPUT)
    except (Cancelled, KeyboardInterrupt):
        return Outcome(CANCELLED, application.sweep_dir)
    except RunFailed:
        return Outcome(1, application.sweep_dir)
    except SystemExit as stop:
        return Outcome(stop.code if isinstance(stop.code, int) else 1, application.sweep_dir)
    except Exception as error:
        message = None if show_traceback else explain(error, argv, _known(config_dir, argv))
        if message is None:
            raise
        _complain(message)
        return Outcome(WRONG_INPUT)
    finally:
        if not show_traceback:
            os.environ.pop("HYDRA_FULL_ERROR", None)
    return Outcome(0, application.sweep_dir)
