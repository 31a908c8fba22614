"""What a cluster has, by `sinfo`: to tell a request that waits from one that can never be met."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from sweeper.errors import UserError
from sweeper.launch.runs import Resources

COMMAND_TIMEOUT_S = 30.0

_FORMAT = "%P|%D|%c|%m|%G|%l|%a|%f"


def ask(*command: str) -> str:
    """The output of one of Slurm's commands.

    Raises:
        OSError, subprocess.SubprocessError: it is not there, or does not answer.
    """
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_S
    ).stdout


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of one partition."""

    partition: str
    is_default: bool
    is_up: bool
    count: int
    cpus: int
    memory_mib: int
    gpus: int
    features: frozenset[str]
    limit_min: float | None  # of a job; None = none


@dataclass(frozen=True)
class SlurmCluster:
    nodes: tuple[Nodes, ...]

    @classmethod
    def here(cls) -> SlurmCluster:
        """The cluster that Slurm's commands talk to.

        Raises:
            UserError: there is none.
        """
        try:
            return cls.parse(ask("sinfo", "--noheader", "--exact", "--format", _FORMAT))
        except FileNotFoundError as error:
            raise UserError(
                "hydra/launcher",
                "there is no Slurm here: sinfo is not installed",
                "run it on the cluster, or use hydra/launcher=local",
            ) from error
        except subprocess.SubprocessError as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise UserError(
                "hydra/launcher",
                f"Slurm does not answer: {said[-1] if said else error}",
                "try again when `sinfo` works, or use hydra/launcher=local",
            ) from error

    @classmethod
    def parse(cls, text: str) -> SlurmCluster:
        """Read `sinfo --noheader --exact --format '%P|%D|%c|%m|%G|%l|%a|%f'`."""
        return cls(tuple(_nodes(line) for line in text.splitlines() if line.count("|") == 7))

    def of(self, need: Resources) -> list[Nodes]:
        """Nodes of the partitions, and with the features, that the run asks for."""
        asked = need.cluster.get("partition")
        names = str(asked).split(",") if asked else None
        wanted = _features(need.cluster.get("constraint"))
        return [
            nodes
            for nodes in self.nodes
            if (nodes.partition in names if names else nodes.is_default)
            and wanted <= nodes.features
        ]

    def gpus_per_node(self, need: Resources) -> int:
        """The most GPUs that a node the run could use has."""
        return max((nodes.gpus for nodes in self.of(need)), default=0)

    def why_never(self, need: Resources) -> str | None:
        """Why the run could wait for ever, or None."""
        asked = need.cluster.get("partition")
        known = sorted({nodes.partition for nodes in self.nodes})
        if asked and not set(str(asked).split(",")) <= set(known):
            return f"the cluster has no partition {asked}, only {', '.join(known)}"
        found = self.of(need)
        where = f"partition {asked or next((n.partition for n in found), 'default')}"
        if asked and found and not any(nodes.is_up for nodes in found):
            return f"{where} is down"
        if need.cluster.get("constraint") and not found:
            return f"{where} has no node with the features {need.cluster['constraint']}"
        limits = [nodes.limit_min for nodes in found]
        if need.timeout_min is not None and found and None not in limits:
            most = max(limit for limit in limits if limit is not None)
            if need.timeout_min > most:
                return f"needs {need.timeout_min:g} min, {where} allows {most:g} min"
        cpus = need.ranks_per_node * (need.cpus_per_task or 1)
        memory_mib = (need.cluster.get("mem_gib") or 0) * 1024
        fitting = sum(
            nodes.count
            for nodes in found
            if nodes.gpus >= need.gpus and nodes.cpus >= cpus and nodes.memory_mib >= memory_mib
        )
        if fitting < need.nodes:
            what = f"{need.gpus} GPUs and {cpus} CPUs" if need.gpus else f"{cpus} CPUs"
            if memory_mib:
                what += f" and {need.cluster['mem_gib']:g} GiB"
            return f"needs {need.nodes} nodes with {what}, {where} has {fitting}"
        return None


def _nodes(line: str) -> Nodes:
    partition, count, cpus, memory, gres, limit, up, features = line.split("|")
    return Nodes(
        partition=partition.rstrip("*"),
        is_default=partition.endswith("*"),
        is_up=up == "up",
        count=int(count),
        cpus=int(cpus.rstrip("+")),
        memory_mib=int(memory.rstrip("+")),
        gpus=_gpus(gres),
        features=frozenset(features.split(",")) - {"(null)"},
        limit_min=minutes(limit),
    )


def _gpus(gres: str) -> int:
    """Of `gpu:8`, `gpu:a100:4(S:0-1),gpu:h100:4`, `(null)`."""
    kinds = re.findall(r"(?:^|,)gpu(?::[^:,()]+)*?:(\d+)(?=[(,]|$)", gres)
    return sum(map(int, kinds))


def minutes(text: str) -> float | None:
    """Of Slurm's `1-02:03:04`, `02:03:04` or `03:04`; None for `infinite`."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + mins + seconds / 60


def _features(constraint: object) -> set[str]:
    """The features that must all be there; nothing where the expression says more than that."""
    text = str(constraint or "")
    return set(text.split("&")) if re.fullmatch(r"[\w.-]+(&[\w.-]+)*", text) else set()
