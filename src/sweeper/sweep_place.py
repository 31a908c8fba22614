"""Where a sweep is kept: its name and its directory, checked before anything is written."""

from __future__ import annotations

import re
import secrets
import tempfile
from datetime import datetime
from functools import cache
from pathlib import Path

from sweeper.errors import UserError


@cache
def new_name() -> str:
    """A sweep name that no other command has: the time, and chance for two in one second."""
    return f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(2)}"


def sweep_name(given: object) -> str:
    """The name a sweep goes by; none given = a new one."""
    return new_name() if given is None else str(given)


def check_name(name: str) -> None:
    """Raises UserError where the name is no plain directory name.

    It starts with a letter, a digit or an underscore: not with a dash, which commands would read as
    an option, nor with a dot, for `.` and `..` are other directories.
    """
    if not re.fullmatch(r"\w([\w.+= -]*[\w.+=-])?", name):
        raise UserError(
            "sweep.name",
            f"{name!r} is not a directory name",
            "use letters, digits, - and _, and begin with a letter or digit",
        )


def check_directory(directory: str, key: str) -> None:
    """Raises UserError where no directory is named; an empty one would be the root or the current
    directory."""
    if not directory.strip():
        raise UserError(key, "is empty", f"name a directory, for example {key}=sweeps")


def check_writable(directory: Path) -> None:
    """Find out whether the directory can be made and written, and leave nothing behind.

    Raises:
        UserError: it cannot.
    """
    nearest = directory.absolute()
    try:
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise unusable(directory, error) from error


def unusable(directory: Path, error: OSError) -> UserError:
    return UserError(
        "hydra.sweep.dir",
        f"{directory} cannot be written: {error.strerror}",
        "choose a writable directory with sweep.dir=DIR or hydra.sweep.dir=DIR",
    )
