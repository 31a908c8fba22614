"""Fixtures that all tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, Train, environment


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each file's tests, which share what they set up, go to one worker; all of Slurm's to one."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(folder if folder == "slurm" else item.path.name))


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """`train(*arguments)` runs train.py in an empty directory; sweeps land in `tmp_path/sweeps`."""

    def call(
        *arguments: str, cwd: Path = tmp_path, timeout_s: float = 600, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *arguments],
            cwd=cwd,
            env=environment(**changes),
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    return call
