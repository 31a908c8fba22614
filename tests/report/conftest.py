"""Sweeps made by hand, and a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# Records by hand, and W&B's server on loopback, are shared with the areas that own them.
sys.path[:0] = [str(TESTS.parent), str(TESTS / "analysis"), str(TESTS / "tracking")]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
)


@pytest.fixture
def browser(tmp_path: Path) -> Callable[[Path], str]:
    """`browser(page)` opens a file in headless Chromium; returns the page as it then is."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium here, and CI must have one")
        pytest.skip("no Chromium here")

    def open_page(page: Path) -> str:
        done = subprocess.run(
            [
                program,
                *FLAGS,
                f"--user-data-dir={tmp_path / 'browser'}",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return open_page


@pytest.fixture
def _no_wandb_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, settings or cache of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NETRC", str(home / ".netrc"))
