"""What the record says of software and hardware."""

import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from measure_fake_nvml import FakeGpu, FakeNvml

from sweeper.machine.cores import cpu_name, usable_cores, usable_memory_bytes
from sweeper.measure.environment import git_commit, hardware, software
from sweeper.place import Place


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == (None, None)  # no repository
    git(tmp_path, "init", "-q")
    assert git_commit(tmp_path) == (None, None)  # no commit
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(tmp_path) == (commit, False)
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == (commit, True)
    assert git_commit(tmp_path / "nowhere") == (None, None)


def test_without_git_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = software(tmp_path, FakeNvml(driver=False))
    assert (found.git_commit, found.git_dirty, found.driver) == (None, None, None)


def test_versions(tmp_path: Path) -> None:
    found = software(tmp_path, FakeNvml(FakeGpu(0)))
    assert found.python == platform.python_version()
    assert found.torch == torch.__version__
    assert found.cuda == torch.version.cuda
    assert found.driver == "570.86.10"
    assert found.hydra is not None
    assert found.hydra.startswith("1.3")
    if torch.version.cuda is None:
        assert found.cudnn is found.nccl is None


def test_hardware_of_a_cpu_rank() -> None:
    place = Place(Path("run"), rank=3, world_size=6, ranks_per_node=4, shares_node_with=("a",))
    found = hardware("cpu", place)
    assert found.device == "cpu"
    assert (found.world_size, found.nodes) == (6, 2)
    assert found.device_name == found.cpu_name
    assert found.device_memory_bytes == usable_memory_bytes()
    assert found.threads_per_rank == torch.get_num_threads()
    assert found.backend is None
    assert found.shares_node_with == ["a"]


def container(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in {"proc/self/cgroup": "0::/a/b\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "proc", root / "cgroup"


def test_a_containers_quota_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert usable_cores(*container(tmp_path / "0", {})) == 16
    inner = {"cgroup/a/b/cpu.max": "400000 100000", "cgroup/a/cpu.max": "max 100000"}
    assert usable_cores(*container(tmp_path / "1", inner)) == 4
    outer = {"cgroup/a/b/cpu.max": "400000 100000", "cgroup/cpu.max": "150000 100000"}
    assert usable_cores(*container(tmp_path / "2", outer)) == 2
    first = {"cgroup/cpu/cpu.cfs_quota_us": "300000", "cgroup/cpu/cpu.cfs_period_us": "100000"}
    assert usable_cores(*container(tmp_path / "3", first)) == 3
    unlimited = {"cgroup/cpu/cpu.cfs_quota_us": "-1", "cgroup/cpu/cpu.cfs_period_us": "100000"}
    assert usable_cores(*container(tmp_path / "4", unlimited)) == 16


def test_a_containers_limit_bounds_the_memory(tmp_path: Path) -> None:
    whole = usable_memory_bytes(*container(tmp_path / "0", {}))
    assert whole > 2**20
    limited = {"cgroup/a/memory.max": str(2**20), "cgroup/a/b/memory.max": "max"}
    assert usable_memory_bytes(*container(tmp_path / "1", limited)) == 2**20


def test_the_processors_name(tmp_path: Path) -> None:
    proc, _ = container(tmp_path, {"proc/cpuinfo": "processor: 0\nmodel name\t: AMD EPYC 7763\n"})
    assert cpu_name(proc) == "AMD EPYC 7763"
    assert cpu_name(tmp_path / "nowhere") != ""
