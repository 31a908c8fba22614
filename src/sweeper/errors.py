"""Errors that are meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can put right; printed as one message, without a traceback.

    Args:
        key: the config key, path or argument that is wrong.
        problem: what is wrong with it.
        remedy: what to type instead.
    """

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(key, problem, remedy)
        self.key = key
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}\n  -> {self.remedy}"


class DivergedError(Exception):
    """The loss became infinite or not a number."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or None if nothing is near."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None
