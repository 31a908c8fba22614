"""A config as the command line would compose it, for the benches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from sweeper.cli import register
from sweeper.config import Config, check

CONF = Path(__file__).parent.parent / "conf"


def configuration(overrides: Sequence[str]) -> Config:
    """Compose, resolve and check, e.g. ["model=dit_s_8", "batch.size=8"]."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        tree = compose("config", overrides=list(overrides))
    config = cast(Config, OmegaConf.to_object(tree))
    check(config)
    return config
