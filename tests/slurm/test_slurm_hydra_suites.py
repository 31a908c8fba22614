"""Hydra's own test suites for launchers, against `slurm`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster.slurm_cluster import Cluster
from hydra import version
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

CELLS = ["hydra/sweeper=cells"]


@pytest.fixture(autouse=True)
def on_the_cluster(plain_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The suites run in this process, and assume that nothing in it has chosen `version_base`."""
    for name, value in plain_cluster.environment.items():
        monkeypatch.setenv(name, value)
    before = version.VersionBase.instance().getbase()
    version.VersionBase.instance().setbase(version.__compat_version__)
    yield
    version.VersionBase.instance().version_base = before


@pytest.mark.parametrize(("launcher_name", "overrides"), [("slurm", CELLS)])
class TestLaunchers(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("slurm", [*CELLS, "hydra.sweeper.max_batch_size=2"])]
)
class TestBatches(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=slurm", *CELLS])]
)
class TestIntegration(IntegrationTestSuite):
    pass
