"""Sharing one machine out to runs: each gets the GPUs and cores it needs, for itself alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sweeper.launch.devices import Node
from sweeper.launch.runs import Resources


@dataclass(frozen=True)
class Lease:
    """What one run holds while it runs."""

    gpus: tuple[str, ...]  # tokens
    cores: tuple[tuple[int, ...], ...]  # of each rank; empty = not bound to cores
    threads: int  # of each rank
    weight: int = 0  # cores it takes from those that runs without GPUs share
    shares: tuple[tuple[str, int], ...] = field(default=(), repr=False)  # (GPU, part of it)


class Slots:
    """Who holds what.

    Args:
        node: the machine.
        runs_per_gpu: runs that may hold the same GPU.
        exclusive: one run at a time; None = on a machine without GPUs.
        max_parallel: most runs at a time; None = as many as fit.
    """

    def __init__(
        self,
        node: Node,
        *,
        runs_per_gpu: int = 1,
        exclusive: bool | None = None,
        max_parallel: int | None = None,
    ) -> None:
        self.node = node
        self.exclusive = (not node.gpus) if exclusive is None else exclusive
        self.max_parallel = max_parallel
        self._parts = [(gpu, part) for part in range(runs_per_gpu) for gpu in node.gpus]
        self._cores_of_part = dict(
            zip(self._parts, _divide(node.cores, len(self._parts)), strict=True)
        )
        self._leases: list[Lease] = []

    @property
    def in_use(self) -> int:
        """Number of runs that hold something."""
        return len(self._leases)

    @property
    def leased_gpus(self) -> set[str]:
        return {gpu for lease in self._leases for gpu in lease.gpus}

    def why_never(self, need: Resources) -> str | None:
        """Why this machine can never run it, or None."""
        if need.nodes > 1:
            return f"needs {need.nodes}, has 1 node"
        if self.node.gpus and need.gpus > len(self.node.gpus):
            return f"needs {need.gpus}, has {_count(len(self.node.gpus))}"
        return None

    def take(self, need: Resources, avoid: Collection[str] = ()) -> Lease | None:
        """A lease for the run, or None while it does not fit.

        Args:
            need: of the run.
            avoid: tokens of GPUs that others are using.
        """
        limit = 1 if self.exclusive else self.max_parallel
        if limit is not None and self.in_use >= limit:
            return None
        on_gpus = self.node.gpus and need.gpus
        lease = self._on_gpus(need, avoid) if on_gpus else self._on_cores(need)
        if lease is not None:
            self._leases.append(lease)
        return lease

    def hold(self, gpus: Collection[str]) -> Lease:
        """A lease for a run that is running already, on these GPUs."""
        free = self._free_parts()
        shares = tuple(next((part for part in free if part[0] == gpu), (gpu, -1)) for gpu in gpus)
        lease = Lease(
            gpus=tuple(gpus),
            cores=(),
            threads=1,
            weight=0 if gpus else len(self.node.cores),
            shares=shares,
        )
        self._leases.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        self._leases.remove(lease)

    def _free_parts(self) -> list[tuple[str, int]]:
        held = {part for lease in self._leases for part in lease.shares}
        return [part for part in self._parts if part not in held]

    def _on_gpus(self, need: Resources, avoid: Collection[str]) -> Lease | None:
        # The least shared GPUs come first, and no GPU twice for one run.
        chosen: dict[str, tuple[str, int]] = {}
        for part in self._free_parts():
            if part[0] not in avoid:
                chosen.setdefault(part[0], part)
        if len(chosen) < need.gpus:
            return None
        shares = tuple(chosen.values())[: need.gpus]
        if self.exclusive or need.ranks_per_node != need.gpus:
            cores, threads = self._even(self.node.cores, need)
        else:
            own = [self._cores_of_part[part] for part in shares]
            threads = need.cpus_per_task or max(1, min(map(len, own)))
            fits = all(len(mine) >= threads for mine in own)
            cores = tuple(mine[:threads] for mine in own) if fits else ()
        return Lease(tuple(gpu for gpu, _ in shares), cores, threads, shares=shares)

    def _on_cores(self, need: Resources) -> Lease | None:
        if self.exclusive:
            cores, threads = self._even(self.node.cores, need)
            return Lease((), cores, threads, weight=len(self.node.cores))
        weight = min(need.ranks_per_node * (need.cpus_per_task or 1), len(self.node.cores))
        if sum(lease.weight for lease in self._leases) + weight > len(self.node.cores):
            return None
        if self.node.gpus:  # the cores are shared out to the GPUs; these float
            return Lease((), (), need.cpus_per_task or 1, weight=weight)
        taken = {core for lease in self._leases for rank in lease.cores for core in rank}
        free = tuple(core for core in self.node.cores if core not in taken)[:weight]
        cores, threads = self._even(free, need)
        return Lease((), cores, threads, weight=weight)

    @staticmethod
    def _even(cores: tuple[int, ...], need: Resources) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Divide cores among the ranks; with fewer cores than asked for, none is bound."""
        each = _divide(cores, need.ranks_per_node)
        threads = need.cpus_per_task or max(1, len(each[0]))
        if any(len(mine) < threads for mine in each):
            return (), threads
        return tuple(mine[:threads] for mine in each), threads


def _divide(cores: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    size = len(cores) // parts if parts else 0
    return [cores[k * size : (k + 1) * size] for k in range(parts)]


def _count(gpus: int) -> str:
    return f"{gpus} GPU" + ("s" if gpus != 1 else "")
