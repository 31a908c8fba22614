from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.slurm_cluster import Cluster, why_not
from slurm_sweep import SlurmSweep


def _cluster(accounting: bool) -> Iterator[Cluster]:
    reason = why_not(accounting)
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no Slurm to test with: {reason}")
        pytest.skip(reason)
    with Cluster(accounting) as found:
        yield found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """With an accounting database."""
    yield from _cluster(accounting=True)


@pytest.fixture(scope="session")
def plain_cluster() -> Iterator[Cluster]:
    """Without one."""
    yield from _cluster(accounting=False)


@pytest.fixture
def sweep(cluster: Cluster, tmp_path: Path) -> SlurmSweep:
    return SlurmSweep(cluster, tmp_path)


@pytest.fixture
def plain_sweep(plain_cluster: Cluster, tmp_path: Path) -> SlurmSweep:
    return SlurmSweep(plain_cluster, tmp_path)
