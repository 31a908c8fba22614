"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A sentence, what it rests on, and the part of the page that shows more."""

    text: str
    evidence: str
    anchor: str = ""
