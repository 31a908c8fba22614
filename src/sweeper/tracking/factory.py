"""From the config's tracker node to a tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeper import instantiate
from sweeper.tracking.guarded import Guarded


def check_tracker(node: Mapping[str, Any] | None) -> None:
    """Check the tracker node, before any run starts.

    Raises:
        UserError: its target or an argument is wrong, or a library that it needs is missing.
    """
    if node is not None:
        instantiate.check_target(node, "tracker")
        instantiate.build(node, "tracker")  # constructors of trackers check and do nothing else


def make_tracker(
    node: Mapping[str, Any] | None,
    warnings: list[str],
    rank: int = 0,
    finish_timeout_s: float = 30.0,
) -> Guarded:
    """The tracker of one rank of a run; on other ranks than 0 it tracks nothing.

    Args:
        node: the config's tracker node; None tracks nothing.
        warnings: list that a failure of the tracker is appended to.
        rank: the rank in the run.
        finish_timeout_s: longest time that `finish` may take, seconds.
    """
    return Guarded(node if rank == 0 else None, warnings, finish_timeout_s)
