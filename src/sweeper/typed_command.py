"""The command as the person typed it, and the commands that follow from it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# What every run's own record says: the same on every machine.
PLAIN_PROGRAM = ("python", "train.py")

# Options that say where the config is; a run means nothing without them.
_CONFIG_OPTIONS = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp")


def key_of(override: str) -> str:
    """The top of what it sets: `train` of ++train.steps=9."""
    return re.split(r"[.=@]", override.lstrip("+~"), maxsplit=1)[0]


def typed_program(argv: Sequence[str]) -> tuple[str, ...]:
    """What stood before `argv` on the command line: the interpreter, its options, the script."""
    words, count = sys.orig_argv, len(argv)
    if words[len(words) - count :] == list(argv) and len(words) > count:
        return tuple(words[: len(words) - count])
    return (sys.executable or "python", sys.argv[0])


@dataclass(frozen=True)
class TypedCommand:
    """A command line.

    Args:
        argv: its arguments.
        program: the words before them.
    """

    argv: tuple[str, ...]
    program: tuple[str, ...] = PLAIN_PROGRAM

    def continuing(self, name: str) -> str:
        """The command that continues the sweep of this name, ready for the shell."""
        words = [word for word in self.argv if not word.lstrip("+").startswith("sweep.name=")]
        return shlex.join([*self.program, *words, f"sweep.name={name}"])

    def alone(self, overrides: Sequence[str]) -> str:
        """The command that repeats one run, of these overrides, in a sweep of its own."""
        kept = [o for o in overrides if key_of(o) not in ("sweep", "rerun")]
        return shlex.join([*PLAIN_PROGRAM, *self._config_options(), *kept])

    def _config_options(self) -> list[str]:
        found: list[str] = []
        for position, word in enumerate(self.argv):
            if word.partition("=")[0] in _CONFIG_OPTIONS:
                found += self.argv[position : position + (1 if "=" in word else 2)]
        return found
