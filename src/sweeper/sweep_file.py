"""`sweep.json`: the conditions a sweep was started under; continuing it under others is refused."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from collections.abc import Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sweeper.errors import UserError
from sweeper.record import (
    IDENTITY_FILE,
    RecordError,
    dump,
    from_plain,
    now,
    read_identity,
    write_atomic,
)
from sweeper.sweep_place import unusable

FILE = "sweep.json"


def git_commit(directory: Path) -> str | None:
    """The commit checked out in `directory`, with + where tracked files differ from it."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=directory, capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def device_names() -> list[str]:
    """Names of the machine's GPUs by NVML; empty where there are none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: no GPU
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return sorted({str(pynvml.nvmlDeviceGetName(handle)) for handle in handles})
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


@dataclass(kw_only=True)
class SweepFile:
    """What defines the conditions of a sweep."""

    name: str
    command: str  # continues the sweep
    started_at: str
    git_commit: str | None = None
    torch: str | None = None
    devices: list[str] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        sweep_dir: Path,
        name: str,
        command: str,
        *,
        allow_change: bool,
        planned: Set[str] | None,
    ) -> SweepFile:
        """Start the sweep's directory, or continue it under the same conditions.

        Args:
            sweep_dir: the sweep's.
            name: the sweep's.
            command: continues it; kept in place of an earlier command's.
            allow_change: continue under other conditions.
            planned: config ids of the whole command; None = more may come.

        Raises:
            UserError: the directory cannot be written, holds another sweep, or the commit, the
                torch version or the GPUs are not those the sweep was started with, or it holds
                configurations that the command does not ask for.
        """
        current = cls(
            name=name,
            command=command,
            started_at=now(),
            git_commit=git_commit(Path(__file__).parent),
            torch=importlib.metadata.version("torch"),
            devices=device_names(),
        )
        path = sweep_dir / FILE
        try:
            sweep_dir.mkdir(parents=True, exist_ok=True)
            earlier = from_plain(cls, json.loads(path.read_text("utf-8")), str(path))
        except FileNotFoundError:
            cls._write(path, current)
            return current
        except OSError as error:
            raise unusable(sweep_dir, error) from error
        except (ValueError, RecordError) as error:
            raise UserError(
                "sweep.name", f"{path} cannot be read ({error})", "remove it, or use another name"
            ) from error
        if earlier.name != name:
            raise UserError(
                "hydra.sweep.dir",
                f"{sweep_dir} holds the sweep {earlier.name}",
                f"continue it with sweep.name={earlier.name}, or choose another directory",
            )
        changed = [
            f"{key} {before} -> {after}"
            for key, before in asdict(earlier).items()
            if key in ("git_commit", "torch", "devices")
            and (after := getattr(current, key)) != before
        ]
        if changed and not allow_change:
            raise UserError(
                "sweep.name",
                f"{name} was started under other conditions: {'; '.join(changed)}",
                "restore them, use another sweep.name, or accept it: sweep.allow_change=true",
            )
        if planned is not None and not allow_change:
            _refuse_other_configurations(sweep_dir, earlier, planned)
        if command != earlier.command:
            earlier = replace(earlier, command=command)
            cls._write(path, earlier)
        return earlier

    @staticmethod
    def _write(path: Path, value: SweepFile) -> None:
        try:
            write_atomic(path, dump(value))
        except OSError as error:
            raise unusable(path.parent, error) from error


def _refuse_other_configurations(sweep_dir: Path, earlier: SweepFile, planned: Set[str]) -> None:
    """A changed key makes every run a new one; without a word the sweep would hold both kinds."""
    held = set()
    for path in sweep_dir.glob(f"*/{IDENTITY_FILE}"):
        try:
            held.add(read_identity(path.parent).config_id)
        except (OSError, ValueError, RecordError):
            continue  # cut short; its run is planned anew
    lost = len(held - planned)
    if lost:
        raise UserError(
            "sweep.name",
            f"{lost} of the {len(held)} configurations in {earlier.name} are not in this command",
            f"use another sweep.name, the earlier command ({earlier.command}), "
            "or accept it: sweep.allow_change=true",
        )
