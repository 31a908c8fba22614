"""The launcher is found by Hydra however the package is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from commands import ROOT, environment

FIND = """
import hydra, sweeper
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from submitit.core.plugins import get_executors
kinds = (Launcher, Sweeper)
found = {c.__name__ for kind in kinds for c in Plugins.instance().discover(kind)}
print(sweeper.__file__)
print(*sorted(found & {"LocalLauncher", "DebugLauncher", "CellsSweeper"}))
print("slots" in get_executors())
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A new environment that sees this one's libraries, but not its installed sweeper."""
    venv.create(tmp_path / "venv", with_pip=True)
    executable = tmp_path / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "venv" / "lib" / version / "site-packages"
    # .pth files inside a directory that is added by a .pth file are not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return executable


@pytest.mark.parametrize("editable", [True, False], ids=["editable", "wheel"])
def test_plugins_are_found(python: Path, tmp_path: Path, editable: bool) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", source)
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*map(str, install), *(["-e"] if editable else []), str(source)],
        check=True,
        # A new environment of Python 3.11 brings a setuptools too old to build a wheel alone.
        env=environment(PYTHONPATH=sysconfig.get_path("purelib")),
        cwd=tmp_path,
        capture_output=True,
        timeout=180,
    )
    done = subprocess.run(
        [str(python), "-c", FIND],
        check=True,
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    file, plugins, executor = done.stdout.strip().splitlines()
    home = source if editable else tmp_path / "venv"
    assert home in Path(file).parents
    assert plugins.split() == ["CellsSweeper", "DebugLauncher", "LocalLauncher"]
    assert executor == "True"
