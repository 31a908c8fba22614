"""What it costs to start a run: python bench/dispatch.py [--runs 12,100] [--quick]

The same task function (bench/dispatch_task.py: import torch, one training step) is run many times,
with other seeds, by

    ours     hydra/launcher=local with hydra/sweeper=cells, as they are by default: one run at
             a time on a machine without GPUs
    hsl      hydra-submitit-launcher's local launcher with Hydra's own sweeper; it starts all
             jobs of a batch at once, so they share the cores
    python   a process of its own for each run, one after another, without Hydra

in turns, in an order drawn anew each round. From the smallest number of runs the best size of
hydra-submitit-launcher's batches is taken, out of all at once and one for each core; where memory
would not hold all, a batch is as large as it does. Every run's loss has to be the same in all
three. The time above training is the wall time of the whole command a run, less the run's step; of
several rounds the median. CPU time is that of the command and all it started.

Last line, of the largest number of runs: ours_over_hsl=... ours_over_python=... seconds_per_run=...
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

TASK = Path(__file__).with_name("dispatch_task.py")
BYTES_OF_A_RUN = 600 * 2**20  # an interpreter with torch, generously
SCHEDULERS = ("SLURM_", "SUBMITIT_", "SWEEPER_")

OURS = ("hydra/launcher=local", "hydra/sweeper=cells")
HSL = ("hydra/launcher=submitit_local",)


@dataclass(frozen=True)
class Cost:
    """Of one run, the mean over a sweep, seconds."""

    above_training: float
    step: float
    cpu: float


def sweep(way: str, runs: int, batch: int) -> tuple[Cost, list[float]]:
    """Run it once; returns the cost and the losses by seed.

    Args:
        way: ours, hsl or python.
        runs: their number.
        batch: runs that hsl starts at once.

    Raises:
        RuntimeError: a run did not do its step.
    """
    with tempfile.TemporaryDirectory() as directory:
        notes = Path(directory)
        if way == "python":
            commands = [[sys.executable, str(TASK), str(seed), directory] for seed in range(runs)]
        else:
            more = OURS if way == "ours" else (*HSL, f"hydra.sweeper.max_batch_size={batch}")
            job = (f"+seed=range({runs})", f"+notes={directory}", f"hydra.sweep.dir={directory}/s")
            commands = [[sys.executable, str(TASK), "-m", *more, *job]]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(SCHEDULERS)}
        cpu_s, started_s = _children_cpu_s(), time.perf_counter()
        for command in commands:
            done = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(f"{way} failed:\n{done.stdout}{done.stderr}")
        wall_s, cpu_s = time.perf_counter() - started_s, _children_cpu_s() - cpu_s
        found = [json.loads((notes / f"{seed}.json").read_text()) for seed in range(runs)]
    step_s = statistics.mean(note["step_s"] for note in found)
    return Cost(wall_s / runs - step_s, step_s, cpu_s / runs), [note["loss"] for note in found]


def _children_cpu_s() -> float:
    """CPU time of the processes that were started here and waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def largest_batch(runs: int) -> int:
    """As many as the memory holds at once."""
    return max(1, min(runs, int(psutil.virtual_memory().available * 0.7 / BYTES_OF_A_RUN)))


def best_batch(runs: int) -> str:
    """`all` or `cores`, whichever lets hsl end first."""
    batches = {"cores": _cores(), "all": largest_batch(runs)}
    if len(set(batches.values())) == 1:
        return "all"
    costs = {name: sweep("hsl", runs, batch)[0] for name, batch in batches.items()}
    best = min(costs, key=lambda name: costs[name].above_training)
    for name, cost in costs.items():
        taken = ", taken" if name == best else ""
        print(f"hsl in batches of {batches[name]}: {cost.above_training:.3f} s a run{taken}")
    return best


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def compare(runs: int, rounds: int, batch: int, seed: int = 0) -> str:
    """Print what each way costs; returns the line of ratios."""
    costs: dict[str, list[Cost]] = {"ours": [], "hsl": [], "python": []}
    losses: dict[str, list[float]] = {}
    order = random.Random(seed)
    for _ in range(rounds):
        for way in order.sample(list(costs), len(costs)):
            cost, losses[way] = sweep(way, runs, batch)
            costs[way].append(cost)
    if not losses["ours"] == losses["hsl"] == losses["python"]:
        raise RuntimeError(f"the runs are not the same: {losses}")
    print(f"{runs} runs, {rounds} rounds, hsl in batches of {batch}")
    above: dict[str, float] = {}
    for way, found in costs.items():
        above[way] = statistics.median(cost.above_training for cost in found)
        cpu_s = statistics.median(cost.cpu for cost in found)
        step_s = statistics.median(cost.step for cost in found)
        print(
            f"  {way:7} {above[way]:6.3f} s a run above training, {cpu_s:6.3f} s of CPU,"
            f" step {step_s * 1e3:.1f} ms"
        )
    return (
        f"ours_over_hsl={above['ours'] / above['hsl']:.4f}"
        f" ours_over_python={above['ours'] / above['python']:.4f}"
        f" seconds_per_run={above['ours']:.4f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", default="12,100", help="sizes of sweeps, ascending")
    parser.add_argument("--rounds", type=int, default=3, help="of sweeps of up to 20 runs")
    parser.add_argument("--quick", action="store_true", help="one sweep of 2 runs each")
    options = parser.parse_args(argv)
    sizes = [2] if options.quick else [int(size) for size in options.runs.split(",")]
    load = os.getloadavg()[0]
    print(f"{_cores()} cores, load {load:.1f} before the start")
    batches = "all" if options.quick else best_batch(sizes[0])
    line = ""
    for size in sizes:
        batch = min(size, _cores()) if batches == "cores" else largest_batch(size)
        rounds = options.rounds if size <= 20 and not options.quick else 1
        line = compare(size, rounds, batch)
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
