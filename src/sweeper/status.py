"""Where a sweep is, from any terminal: `python -m sweeper.status DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sweeper.launch.progress import counts, read_sweep, sweep_time_left_s
from sweeper.launch.render import duration, table
from sweeper.launch.slurm_status import add_states


def main(argv: Sequence[str] | None = None) -> int:
    """Print the runs of the sweep directory given; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sweeper.status", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of a sweep")
    parser.add_argument("--all", action="store_true", help="list the runs that have ended, too")
    options = parser.parse_args(argv)
    sweep = read_sweep(options.directory)
    if not sweep:
        print(f"{options.directory}: no runs of a sweep here", file=sys.stderr)
        return 1
    active = [run for run in sweep if run.record is None]
    add_states(active)
    active.sort(key=lambda run: run.status != "running")  # stable: then as named
    running = sum(run.status == "running" for run in active)
    left = sweep_time_left_s(sweep, parallel=max(1, running)) if running else None
    caption = counts(sweep) + (f" · {duration(left)} left" if left is not None else "")
    Console().print(table(sweep if options.all else active, caption))
    return 0


if __name__ == "__main__":
    sys.exit(main())
