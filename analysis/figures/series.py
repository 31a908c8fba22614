"""Per-step series of runs, from the files beside their records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.study import Floats

STEPS_FILE = "steps.csv"
UTILIZATION_FILE = "utilization.csv"

# Points of a line; more of them are averaged, as print could not show them.
MOST_POINTS = 400


def read_series(run_dir: str, name: str) -> pd.DataFrame | None:
    """A CSV file of a run as numbers; None where it is absent, empty or unreadable."""
    path = Path(run_dir) / name
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError):  # pandas' parser errors are ValueErrors
        return None
    return frame.apply(pd.to_numeric, errors="coerce") if len(frame) else None


def thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most MOST_POINTS points, each the mean over neighbours."""
    if len(x) <= MOST_POINTS:
        return x, y
    edges = np.linspace(0, len(x), MOST_POINTS + 1).astype(np.int64)[:-1]
    counts = np.diff(np.append(edges, len(x)))
    return np.add.reduceat(x, edges) / counts, np.add.reduceat(y, edges) / counts
