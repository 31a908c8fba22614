"""How the ranks of one attempt find each other: no fixed port, and nothing from the environment.

Rank 0 opens a store on a port that the system picks and publishes its address in the attempt's
directory, which all nodes of a run see; the others read it there. RANK, MASTER_PORT and the like,
exported by a user or left by a scheduler, play no part.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not declare it

from sweeper.place import Place

RENDEZVOUS_FILE = "rendezvous.json"
LOOPBACK = "127.0.0.1"

_POLL_S = 0.05
_PROBE_S = 5.0  # how long one address may take to answer
_JOIN_S = 10.0  # how long a store that answered may take to know the token


def open_store(place: Place, timeout_s: float) -> TCPStore:
    """The store that all ranks of this attempt share.

    Args:
        place: this rank.
        timeout_s: how long to wait for the others, here and in later calls on the store.

    Raises:
        TimeoutError: rank 0 published no address that can be reached.
    """
    path = place.attempt_dir / RENDEZVOUS_FILE
    if place.rank == 0:
        return _publish(place, path, timeout_s)
    return _join(place, path, timeout_s)


def _publish(place: Place, path: Path, timeout_s: float) -> TCPStore:
    store = TCPStore(
        LOOPBACK,
        0,
        place.world_size,
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
    )
    # The port of a dead attempt may belong to another store by now: the token tells them apart.
    token = uuid.uuid4().hex
    store.set(token, "1")
    one_node = place.ranks_per_node == place.world_size
    address = {
        "hosts": [LOOPBACK] if one_node else _own_addresses(),
        "port": store.port,
        "token": token,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(address, file)
    os.replace(temporary, path)
    return store


def _join(place: Place, path: Path, timeout_s: float) -> TCPStore:
    deadline = time.monotonic() + timeout_s
    seen: Any = None
    while time.monotonic() < deadline:
        # Listing the directory makes a network file system look for new files.
        with contextlib.suppress(OSError):
            os.listdir(path.parent)
        with contextlib.suppress(OSError, ValueError):
            seen = json.loads(path.read_text(encoding="utf-8"))
        for host in seen["hosts"] if seen else []:
            store = _connect(host, seen, place.world_size, timeout_s)
            if store is not None:
                return store
        time.sleep(_POLL_S)
    raise TimeoutError(
        f"rank {place.rank} found no reachable address of rank 0 in {path} within {timeout_s:g} s"
        + (f"; last read: {seen}" if seen else "; the file was not there")
    )


def _connect(
    host: str, address: dict[str, Any], world_size: int, timeout_s: float
) -> TCPStore | None:
    """The store at this address, or None if none answers there or it is another attempt's."""
    port, token = address["port"], address["token"]
    try:
        socket.create_connection((host, port), timeout=_PROBE_S).close()
        store = TCPStore(
            host,
            port,
            world_size,
            is_master=False,
            timeout=timedelta(seconds=_JOIN_S),
            wait_for_workers=False,
        )
        if not store.check([token]):
            return None
    except (OSError, RuntimeError):  # torch's DistNetworkError is a RuntimeError
        return None
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def _own_addresses() -> list[str]:
    """Addresses of this host that other nodes may reach, the likeliest first."""
    found = []
    with contextlib.suppress(OSError):
        found.append(socket.gethostbyname(socket.gethostname()))
    # A UDP socket sends nothing on connect, but has the address of the route it would take.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect(("10.255.255.255", 1))
        found.append(probe.getsockname()[0])
    found.append(socket.getfqdn())
    return [host for host in dict.fromkeys(found) if not host.startswith("127.")]
