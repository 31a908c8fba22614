"""Hydra's own test suites for launchers, against `local` and `debug`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hydra import version
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

# torch need not be imported ahead for tasks that do not use it.
LOCAL = ["hydra.launcher.preload=[]"]
CELLS = ["hydra/sweeper=cells"]


@pytest.fixture(autouse=True)
def base_version() -> Iterator[None]:
    """The suites assume that nothing in this process has chosen Hydra's `version_base` yet."""
    before = version.VersionBase.instance().getbase()
    version.VersionBase.instance().setbase(version.__compat_version__)
    yield
    version.VersionBase.instance().version_base = before


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("local", [*LOCAL, *CELLS]), ("debug", CELLS)]
)
class TestLaunchers(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    ("launcher_name", "overrides"),
    [
        ("local", ["hydra/sweeper=cells", "hydra.sweeper.max_batch_size=2", *LOCAL]),
        ("debug", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"]),
    ],
)
class TestBatches(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [
        ({}, ["-m", "hydra/launcher=local", "hydra/sweeper=cells", *LOCAL]),
        ({}, ["-m", "hydra/launcher=debug"]),
    ],
    ids=["local", "debug"],
)
class TestIntegration(IntegrationTestSuite):
    pass
