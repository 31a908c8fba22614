"""What `hydra/launcher=local`, `debug`, `slurm` and `hydra/sweeper=cells` consist of.

In a module of its own: Hydra executes the plugin modules it scans before they are registered, and a
dataclass there could not resolve its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass

from hydra.core.config_store import ConfigStore

from sweeper.launch.settings import Settings
from sweeper.launch.slurm_settings import SlurmSettings


@dataclass
class LocalConf(Settings):
    _target_: str = "hydra_plugins.sweeper_launcher.launchers.LocalLauncher"


@dataclass
class DebugConf(Settings):
    _target_: str = "hydra_plugins.sweeper_launcher.launchers.DebugLauncher"


@dataclass
class SlurmConf(SlurmSettings):
    _target_: str = "hydra_plugins.sweeper_launcher.launchers.SlurmLauncher"


@dataclass
class CellsConf:
    _target_: str = "hydra_plugins.sweeper_launcher.sweepers.CellsSweeper"
    max_batch_size: int | None = None  # jobs launched together; null = all
    params: dict[str, str] | None = None  # more overrides, as on the command line


def register() -> None:
    """Called by each plugin module when Hydra executes it, which it may do more than once."""
    for group, name, node in (
        ("hydra/launcher", "local", LocalConf),
        ("hydra/launcher", "debug", DebugConf),
        ("hydra/launcher", "slurm", SlurmConf),
        ("hydra/sweeper", "cells", CellsConf),
    ):
        ConfigStore.instance().store(group=group, name=name, node=node, provider="sweeper_launcher")
