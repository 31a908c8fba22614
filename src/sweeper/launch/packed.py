"""A composed config while its run waits: a thousand trees would fill the command's memory."""

from __future__ import annotations

import pickle
import zlib
from typing import cast

from omegaconf import DictConfig


class PackedConfig:
    """A composed config as some 6 KB of bytes, where the tree takes 160.

    Args:
        config: with its hydra node; not changed, and not kept.
    """

    __slots__ = ("_packed",)

    def __init__(self, config: DictConfig) -> None:
        self._packed = zlib.compress(pickle.dumps(config), level=1)

    def unpack(self) -> DictConfig:
        """A copy of its own, with its types and interpolations; takes 2 ms."""
        return cast(DictConfig, pickle.loads(zlib.decompress(self._packed)))
