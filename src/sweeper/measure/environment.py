"""What a run ran on: software with versions, hardware with names."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pynvml
import torch
import torch.distributed as dist

from sweeper.machine import nvml as nv
from sweeper.machine.cores import cpu_name, machine_cores, usable_memory_bytes
from sweeper.place import Place
from sweeper.record import Hardware, Software

_GIT_SECONDS = 5.0


def software(directory: Path | str | None = None, nvml: Any = pynvml) -> Software:
    """Versions of what a run depends on; null for what is not there.

    Args:
        directory: whose git commit is recorded: normally the one the command was given in.
        nvml: the pynvml module.
    """
    commit, dirty = git_commit(Path.cwd() if directory is None else Path(directory))
    with nv.session(nvml) as library:
        driver = None if library is None else nv.ask(library, library.nvmlSystemGetDriverVersion)
    cuda = torch.version.cuda
    nccl = None
    if cuda is not None and dist.is_available() and dist.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]  # torch's gap
    cudnn = torch.backends.cudnn.version() if cuda is not None else None  # type: ignore[no-untyped-call]  # torch's gap
    return Software(
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=cuda,
        cudnn=None if cudnn is None else str(cudnn),
        nccl=nccl,
        driver=driver,
        sweeper=_version("sweeper"),
        hydra=_version("hydra-core"),
        submitit=_version("submitit"),
        wandb=_version("wandb"),
        platform=platform.platform(),
        git_commit=commit,
        git_dirty=dirty,
    )


def hardware(device: torch.device | str, place: Place) -> Hardware:
    """The device and machine of this rank; on several nodes `hosts` holds this rank's alone."""
    device = torch.device(device)
    result = Hardware(
        device=device.type,
        world_size=place.world_size,
        nodes=-(-place.world_size // place.ranks_per_node),
        hosts=[socket.gethostname()],
        backend=dist.get_backend() if dist.is_available() and dist.is_initialized() else None,
        cpu_name=cpu_name(),
        cpu_count=machine_cores(),
        threads_per_rank=torch.get_num_threads(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        shares_node_with=list(place.shares_node_with),
    )
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        result.device_name = properties.name
        result.device_memory_bytes = properties.total_memory
    else:
        result.device_name = result.cpu_name
        result.device_memory_bytes = usable_memory_bytes()
    return result


def git_commit(directory: Path) -> tuple[str | None, bool | None]:
    """The directory's commit, and whether files differ from it; (None, None) without git."""

    def git(*arguments: str) -> str | None:
        # No optional locks: ranks ask at the same time, and the user may be working in there.
        with suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(
                ["git", "--no-optional-locks", "-C", str(directory), *arguments],
                capture_output=True,
                text=True,
                timeout=_GIT_SECONDS,
                check=True,
                stdin=subprocess.DEVNULL,
            )
            return answer.stdout.strip()
        return None

    commit = git("rev-parse", "--verify", "HEAD")
    changes = None if commit is None else git("status", "--porcelain")
    return commit, None if changes is None else bool(changes)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
