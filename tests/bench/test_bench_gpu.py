"""The script for the day a GPU is there, on the CPU: from a checkout that nobody installed."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from commands import ROOT, environment

from sweeper.record import RECORD_FILE, Record, dump, read_record

TINY = (
    *("--cpu", "--precision=fp32", "--batch=4", "--steps=4", "--warmup=1", "--evaluate=4"),
    "hardware.threads=1",
)
LEFT_OUT = "left out: no time"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, and a Python that has all libraries but not this package."""
    directory = tmp_path_factory.mktemp("plain")
    for name in ("src", "analysis", "bench", "conf"):
        unwanted = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(ROOT / name, directory / "checkout" / name, ignore=unwanted)
    for name in ("train.py", "pyproject.toml"):
        shutil.copy(ROOT / name, directory / "checkout")
    (directory / "libraries").mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("sweeper", "__editable__")) and entry.suffix != ".pth":
            (directory / "libraries" / entry.name).symlink_to(entry)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{directory}/libraries" exec "{base}" "$@"\n'
    )
    python.chmod(0o755)
    return directory


def grid(
    checkout: Path, *options: str, into: str = "output"
) -> tuple[subprocess.CompletedProcess[str], Path]:
    output = checkout / into
    done = subprocess.run(
        [str(checkout / "checkout" / "bench" / "gpu.sh"), str(output), *options],
        env={**environment(), "PYTHON": str(checkout / "python")},
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=700,
    )
    return done, output


def cells(output: Path) -> list[dict[str, str]]:
    with (output / "cells.csv").open() as file:
        return list(csv.DictReader(file))


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    pairs = re.findall(r"(\w+)=(\d+)", done.stdout.splitlines()[-1])
    return {name: int(value) for name, value in pairs}


def test_without_time_every_cell_is_named_as_left_out(checkout: Path) -> None:
    done, output = grid(checkout, "--cpu", "--minutes=0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["status"] for row in cells(output)] == [LEFT_OUT] * 8
    assert done.stdout.count(LEFT_OUT) == 8
    assert counts(done)["left_out"] == counts(done)["cells"] == 8


def test_the_grid_runs_and_measured_memory_meets_its_estimate(
    checkout: Path, tmp_path: Path
) -> None:
    done, output = grid(checkout, *TINY, "--ckpt=off")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = cells(output)
    assert row["status"] == "completed"
    record = read_record(output / row["run_dir"] / RECORD_FILE)
    assert int(row["peak_bytes"]) == record.memory.warm.headline_bytes
    assert row["estimated_bytes"] == ""
    assert "compared with none" in done.stdout
    assert (output / "tables" / "runs.csv").exists()
    assert (output / "machine.txt").read_text().strip()

    # The same again, with an estimate; what is there already is not run again.
    write_estimate(record, tmp_path, int(row["peak_bytes"]) // 2)
    done, output = grid(checkout, *TINY, "--ckpt=off", f"--estimates={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (again,) = cells(output)
    assert again["run_dir"] == row["run_dir"]
    assert float(again["measured_over_estimated"]) == pytest.approx(2.0, rel=1e-4)
    assert "dit_tiny fp32 off 4: 2.000" in done.stdout
    assert os.listdir(output / "sweeps") == ["dit_tiny"]


def write_estimate(record: Record, directory: Path, peak_bytes: int) -> None:
    record.source = "estimate"
    record.memory.warm.peak_tensor_bytes = peak_bytes
    (directory / RECORD_FILE).write_text(dump(record))


def test_a_failed_run_is_the_scripts_failure(checkout: Path) -> None:
    more = ("--ckpt=off", "optim.lr=1e38", "--models=dit_tiny")
    done, output = grid(checkout, *TINY, *more, into="failed")
    assert done.returncode == 1
    assert counts(done)["failed"] == 1
    assert cells(output)[0]["status"] not in ("completed", LEFT_OUT)


def test_a_sweep_that_does_not_start_is_the_scripts_failure(checkout: Path) -> None:
    more = ("--ckpt=off", "optim.nonsense=1", "--models=dit_tiny")
    done, output = grid(checkout, *TINY, *more, into="refused")
    assert done.returncode == 1
    assert counts(done)["failed"] == 1
    assert cells(output)[0]["status"] == "failed: the sweep ended with exit code 2"


def test_missing_libraries_are_named(checkout: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "bench" / "gpu.sh"), str(checkout / "none"), "--cpu"],
        env=environment(PYTHON=str(Path(sys.base_prefix) / "bin" / "python3")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "WHEELS" in done.stderr
    assert "torch" in done.stderr
