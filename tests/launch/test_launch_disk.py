"""A disk that fills up while a sweep runs, and records that were cut short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launch_app import APP, Sweep

from sweeper.record import RECORD_FILE, Status, read_record

IN_A_SMALL_FILE_SYSTEM = """
set -e
mount -t tmpfs -o size=1500k none "$1" && cd "$1"
run() { echo "== $*"; "$python" "$app" "$@" 2>&1 && echo "exit 0" || echo "exit $?"; }
python=$2 app=$3
run -m do=ok,fill
sha256sum sweep/ok-*/record.json
cat /dev/zero > filler || true
run -m do=ok seed=0,1
rm filler
run -m do=ok seed=0,1
sha256sum sweep/ok-*/record.json
"""

IN_A_FILE_SYSTEM_THAT_FREEZES = """
set -e
mount -t tmpfs none "$1" && cd "$1"
run() { echo "== $*"; "$python" "$app" "$@" 2>&1 && echo "exit 0" || echo "exit $?"; }
python=$2 app=$3
run -m do=ok,freeze hydra.launcher.order=given
sha256sum sweep/ok-*/record.json
run -m do=ok,freeze
umount sweep
run -m do=ok seed=0,1
sha256sum sweep/ok-*/record.json
"""


def may_mount(directory: Path) -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(directory)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def in_a_file_system_of_its_own(sweep: Sweep, script: str) -> list[str]:
    """What each command of the script printed; one file system is mounted for it and goes away."""
    if not may_mount(sweep.cwd):
        pytest.skip("this system lets a person mount no file system of their own")
    command = ["unshare", "-rm", "bash", "-c", script, "-", str(sweep.cwd)]
    done = subprocess.run(
        [*command, sys.executable, str(APP)],
        env=sweep.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Traceback" not in output
    # The record that was there at first is still the same at the end.
    before, *later = [line.split()[0] for line in output.splitlines() if "/record.json" in line]
    assert before in later
    assert len(later) == 2
    sweep.assert_nothing_left()
    return output.split("== ")[1:]


def test_a_full_disk_is_one_message_and_earlier_records_stand(sweep: Sweep) -> None:
    while_running, from_the_start, after = in_a_file_system_of_its_own(
        sweep, IN_A_SMALL_FILE_SYSTEM
    )
    assert "completed do=ok" in while_running
    assert "is the disk full?" in while_running or "cannot be written" in while_running
    assert "exit 1" in while_running
    assert "cannot be written any more: No space left on device" in from_the_start
    assert "exit 2" in from_the_start
    assert "2 runs, 1 of them recorded already" in after
    assert "exit 0" in after


def test_a_disk_that_becomes_read_only_is_one_message_and_earlier_records_stand(
    sweep: Sweep,
) -> None:
    while_running, from_the_start, after = in_a_file_system_of_its_own(
        sweep, IN_A_FILE_SYSTEM_THAT_FREEZES
    )
    assert "completed do=ok" in while_running
    assert "failed    do=freeze" in while_running
    assert "cannot be written: Read-only file system" in while_running
    assert "exit 1" in while_running
    assert "hydra.sweep.dir: sweep cannot be written: Read-only file system" in from_the_start
    assert "exit 2" in from_the_start
    assert "2 runs, 1 of them recorded already" in after
    assert "exit 0" in after


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "iden', "[]"])
def test_a_record_that_was_cut_short_is_said_to_be_so_and_the_run_done_again(
    sweep: Sweep, text: str
) -> None:
    assert sweep("-m", "do=ok", "seed=1,2").returncode == 0
    paths = [path / RECORD_FILE for path in sweep.run_dirs().values()]
    paths[0].write_text(text)
    before = paths[1].read_bytes()
    done = sweep("-m", "do=ok", "seed=1,2")
    assert done.returncode == 0, done.stdout
    assert "2 runs, 1 of them recorded already" in done.stdout
    again = read_record(paths[0])
    assert (again.status, again.attempt) == (Status.COMPLETED, 1)
    assert paths[1].read_bytes() == before
