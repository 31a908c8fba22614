from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_app import Sweep


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    found = Sweep(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def shared_sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    found = Sweep(tmp_path_factory.mktemp("shared"))
    yield found
    found.end()
