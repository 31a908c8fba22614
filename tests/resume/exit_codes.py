"""How a rank that `warm_ranks` has forked says why it ended."""

PREEMPTED, SUPERSEDED = 75, 76
