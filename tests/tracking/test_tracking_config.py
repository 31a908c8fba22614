"""The options of the config group `tracker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from sweeper.tracking.factory import check_tracker, make_tracker

CONF = Path(__file__).parents[2] / "conf"
OPTIONS = sorted(path.stem for path in (CONF / "tracker").glob("*.yaml"))


def _node(option: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+tracker={option}"])
    node = OmegaConf.to_container(config.tracker, resolve=True)
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def test_the_group_has_its_options() -> None:
    assert OPTIONS == ["none", "tensorboard", "wandb", "wandb_online"]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_passes_the_check(option: str) -> None:
    check_tracker(_node(option))


def test_none_tracks_nothing_and_the_others_do() -> None:
    active = {option: make_tracker(_node(option), []).active for option in OPTIONS}
    assert active == {"none": False, "tensorboard": True, "wandb": True, "wandb_online": True}


def test_wandb_is_offline_unless_asked() -> None:
    assert _node("wandb")["mode"] == "offline"
    assert _node("wandb_online") == {**_node("wandb"), "mode": "online"}
