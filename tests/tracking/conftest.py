"""Shared by the tests of trackers: a run to mirror, no W&B account, a proxy that counts."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.record import Identity


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, settings or cache of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / ".netrc"))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(home))


@pytest.fixture
def identity() -> Identity:
    return Identity(
        sweep="compare",
        run_id="a1b2c3d4e5",
        config_id="0f0f0f0f0f",
        overrides=["precision=amp", "ckpt=on", "gpus=4"],
        choices={"precision": "amp", "ckpt": "on", "gpus": "4"},
        variant="precision=amp+ckpt=on+gpus=4",
        command="python train.py precision=amp ckpt=on gpus=4",
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The requests for hosts other than this one: all of them end at a proxy that refuses."""
    seen: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                seen.append(connection.recv(200))

    threading.Thread(target=refuse, daemon=True).start()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield seen
    listener.close()
