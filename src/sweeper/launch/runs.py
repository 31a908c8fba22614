"""What the launcher is asked to run: `Run`s with the `Resources` they need."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from omegaconf import DictConfig, OmegaConf

from sweeper.errors import UserError
from sweeper.launch.packed import PackedConfig
from sweeper.launch.settings import Settings
from sweeper.record import Identity

_ABOVE_0 = (
    "nodes",
    "cpus_per_task",
    "timeout_min",
    "hang_timeout_min",
    "max_parallel",
    "runs_per_gpu",
    "heartbeat_s",
)
_ORDERS = ("cheap_first", "given")


def _is_positive(value: float | None) -> bool:
    return value is None or (value > 0 and math.isfinite(value))


def _refuse_unless(possible: bool, key: str, settings: Settings, remedy: str) -> None:
    if not possible:
        value = getattr(settings, key)
        raise UserError(f"hydra.launcher.{key}", f"{value} is not possible", remedy)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one run needs."""

    gpus: int = 1  # per node, one rank each; on a machine without GPUs, processes
    nodes: int = 1
    ranks: int | None = None  # per node; None = one for each GPU, at least one
    cpus_per_task: int | None = None
    timeout_min: float | None = None
    hang_timeout_min: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)  # keys of a cluster's launcher alone

    @property
    def ranks_per_node(self) -> int:
        return self.ranks if self.ranks is not None else max(1, self.gpus)

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    @classmethod
    def from_settings(cls, settings: Settings) -> Resources:
        for key in _ABOVE_0:
            _refuse_unless(_is_positive(getattr(settings, key)), key, settings, "use above 0")
        _refuse_unless(settings.gpus_per_node >= 0, "gpus_per_node", settings, "use 0 up")
        _refuse_unless(settings.order in _ORDERS, "order", settings, f"use {' or '.join(_ORDERS)}")
        return cls(
            gpus=settings.gpus_per_node,
            nodes=settings.nodes,
            cpus_per_task=settings.cpus_per_task,
            timeout_min=settings.timeout_min,
            hang_timeout_min=settings.hang_timeout_min,
            env=dict(settings.env),
        )

    @classmethod
    def from_config(cls, config: DictConfig) -> Resources:
        """Read a composed config's `hydra.launcher` node, with its interpolations resolved."""
        need = cls.from_settings(settings_from(config))
        node = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        assert isinstance(node, dict)
        common = {"_target_", *(f.name for f in dataclasses.fields(Settings))}
        more = {str(name): value for name, value in node.items() if name not in common}
        for key, least in (("gpus_per_node_max", 1), ("signal_s", 0), ("max_requeues", 0)):
            value = more.get(key)
            if value is not None and not value >= least:
                problem = f"{value} is not possible"
                raise UserError(f"hydra.launcher.{key}", problem, f"use {least} up")
        return dataclasses.replace(need, cluster=more)


def settings_from(config: DictConfig) -> Settings:
    """The `hydra.launcher` node of a composed config.

    Raises:
        UserError: the launcher is not one of this package.
    """
    node = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    names = {f.name for f in dataclasses.fields(Settings)}
    if not isinstance(node, dict) or not names <= node.keys():
        raise UserError(
            "hydra/launcher", "is not a launcher of sweeper", "use hydra/launcher=local"
        )
    return Settings(**{name: node[name] for name in names})


@dataclass(kw_only=True)
class Run:
    """One run of a sweep.

    An application may plan fewer runs than there are jobs (duplicates collapse) or more (repeats).
    """

    identity: Identity
    config: PackedConfig  # composed, with the hydra node
    run_dir: Path
    plain: dict[str, Any] = field(default_factory=dict)  # resolved, without it; kept as config.yaml
    resources: Resources = field(default_factory=Resources)
    job_numbers: Sequence[int] = ()  # positions of the jobs it answers for, in the launcher's list
    skip: str | None = None  # why it is not run at all
    keep: bool = False  # an earlier record stands
    cost: float | None = None  # for order=cheap_first, any unit; None = ranks
    return_value: Any = None  # of a kept run, for the sweeper
    writes_record: bool = True  # False: the launcher writes it, from the way the run ended

    @property
    def label(self) -> str:
        """A short name for people."""
        repeat = f" #{self.identity.repeat}" if self.identity.repeat else ""
        return (self.identity.variant or self.identity.run_id) + repeat


class Application(Protocol):
    """What a task function may carry as its attribute `sweeper_application`."""

    def plan(
        self, configs: Iterable[DictConfig], overrides: Sequence[Sequence[str]]
    ) -> Sequence[Run]:
        """The runs of a sweep; called before anything starts.

        Args:
            configs: one composed config a job, with its hydra node. Each is composed when it is
                asked for; pack what is kept.
            overrides: the overrides of each job.

        Raises:
            UserError: nothing is started.
        """
