"""A config source that answers `gpus=<n>` and `accum=<n>` for every n >= 1.

A directory of files could offer a few numbers only. Listing (help, shell completion) names the
usual ones.
"""

from __future__ import annotations

import re

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

_KEYS = {"gpus": "count", "accum": "steps"}  # group -> the key that its number sets
_LISTED = ["1", "2", "4", "8"]


class CountSource(ConfigSource):
    @staticmethod
    def scheme() -> str:
        return "count"

    @staticmethod
    def _match(config_path: str) -> re.Match[str] | None:
        return re.fullmatch(rf"({'|'.join(_KEYS)})/([1-9]\d*)(?:\.yaml)?", config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        match = self._match(config_path)
        if match is None:
            raise ConfigLoadError(f"Config not found: {config_path}")
        group, number = match[1], int(match[2])
        return ConfigResult(
            config=OmegaConf.create({_KEYS[group]: number}),
            path=f"{self.scheme()}://",
            provider=self.provider,
            header={"package": group},
        )

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path in _KEYS

    def is_config(self, config_path: str) -> bool:
        return self._match(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        wanted = results_filter in (None, ObjectType.CONFIG)
        return list(_LISTED) if wanted and config_path in _KEYS else []


class CountSearchPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("counts", "count://")


def register() -> None:
    """For this program alone: as an installed plugin it would claim `gpus` in every application."""
    for plugin in (CountSource, CountSearchPath):
        Plugins.instance().register(plugin)
