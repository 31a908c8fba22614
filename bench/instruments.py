"""What the instruments cost: python bench/instruments.py

Trains the same thing in three ways, a few steps of each in turns, in one process and in an order
drawn anew each round:

    instrumented  the program's own loop with all that a run has: step clock, utilisation sampler,
                  heartbeat, loader, tracker process, preemption, live progress.
    bare          a loop written by hand over batches that lie ready in memory.
    loader        the same loop, but its batches come from the program's loader, as they are needed.

First the loop by hand and the program's do the same steps from the same weights, and their losses
have to be equal bit for bit, or the bench fails. Then all three train one model in turns: models of
their own would lie elsewhere in memory, which alone can make a difference of some per cent.

What the instrumented run does in the background stands still while the others have their turn: the
heartbeat's and the sampler's threads are held, the tracker's process stopped, and the loader has
finished the batches it builds ahead, within the time of the steps that asked for them. The garbage
collector is off for all three, as it is in a measured window. Counting memory and FLOPs lies
outside the window and costs it nothing.

Two clocks: the wall's, which decides, and the CPU time of all threads of this process, which other
programs on the machine disturb far less.

In the end the instruments alone are timed, around a step that computes nothing: what they take of
the loop's own thread, whatever the model. The fastest of many blocks counts, which other programs
disturb least.

Last line: instrumented_over_bare=... low=... high=... cpu_time_ratio=... own_cost_us=... and more.
The first is to be at most 1.01 where a step takes 20 ms or more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import psutil
import torch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.by_hand import ByHand  # noqa: E402  # found through the path above
from bench.configuration import configuration  # noqa: E402  # found through the path above
from bench.pairs import (  # noqa: E402
    Seconds,
    Times,
    alternate,
    compare,
    describe,
    load_line,
    on_clock,
    timed,
)
from sweeper.config import Config  # noqa: E402
from sweeper.device import choose_device, limited  # noqa: E402
from sweeper.measure.sampler import UtilizationSampler  # noqa: E402
from sweeper.observer import Phase  # noqa: E402
from sweeper.place import Place  # noqa: E402
from sweeper.preemption import Preemption  # noqa: E402
from sweeper.ranks import Ranks  # noqa: E402
from sweeper.record import Identity, write_identity  # noqa: E402
from sweeper.report import Report  # noqa: E402
from sweeper.trainer import Trainer  # noqa: E402  # the loop itself, not a copy of it
from sweeper.training.build import build_step  # noqa: E402
from sweeper.training.step import StepResult  # noqa: E402

LEAST_STEP_MS = 20.0
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "ema", "rest")
# Making a sample costs the same for every model; the smallest one hides none of it.
DEFAULT = ("model=dit_s_8", "data=synthetic", "batch.size=8")


class Background:
    """What an instrumented run does beside its steps; `held` while others are timed."""

    def __init__(self, report: Report, sampler: UtilizationSampler) -> None:
        self._held = False
        self._sampler = sampler
        heartbeat = report._heartbeat
        write = heartbeat._write

        def write_unless_held() -> None:
            if not self._held:
                write()

        heartbeat._write = write_unless_held  # type: ignore[method-assign]  # for this bench alone
        self._processes = psutil.Process().children(recursive=True)  # the tracker's

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._held = self._sampler.paused = True
        for process in self._processes:
            process.suspend()
        try:
            yield
        finally:
            for process in self._processes:
                process.resume()
            self._held = self._sampler.paused = False


class Bench:
    """The three ways, timed block by block.

    Args:
        steps: of one block.
    """

    def __init__(self, rank: Trainer, config: Config, background: Background, steps: int) -> None:
        self._rank, self._background, self._steps = rank, background, steps
        self._device = rank.device
        self.bare_loop = ByHand(config, rank.device, rank.step)
        self.loader_loop = ByHand(config, rank.device, rank.step)

    def instrumented(self) -> Seconds:
        def block() -> None:
            self._rank._advance(self._rank.results.count + self._steps)
            wait(self._rank.loader._ahead)

        return self._timed(block)

    def bare(self) -> Seconds:
        with self._background.held():
            ready = [next(self.bare_loop.loader) for _ in range(self._steps)]
            wait(self.bare_loop.loader._ahead)
            return self._timed(lambda: self.bare_loop.train(iter(ready), self._steps))

    def loader(self) -> Seconds:
        def block() -> None:
            self.loader_loop.train(self.loader_loop.loader, self._steps)
            wait(self.loader_loop.loader._ahead)

        with self._background.held():
            return self._timed(block)

    def _timed(self, block: Callable[[], None]) -> Seconds:
        return timed(block, self._steps, self._wait)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def check_losses(rank: Trainer, config: Config, steps: int) -> None:
    """Do the run's first steps, and the same by hand from the same weights.

    Raises:
        RuntimeError: they did not compute the same.
    """
    loop = ByHand(config, rank.device, build_step(config, rank.device))
    with loop.loader:
        loop.train(loop.loader, steps)
    rank._advance(steps)
    theirs = rank.results.losses().tolist()
    if loop.losses() != theirs:
        raise RuntimeError(f"losses by hand {loop.losses()} and of the run {theirs} differ")
    print(f"losses of the first {steps} steps are equal bit for bit: {theirs}")


def own_cost_s(rank: Trainer) -> float:
    """Seconds a step that the program's loop and its instruments take of their thread; no data."""
    batch, loss = next(rank.loader), torch.zeros((), device=rank.device)
    result = StepResult(loss, None, None, 0.0)

    def nothing(*_: object, **__: object) -> StepResult:
        for phase in PHASES:
            rank.clock.phase(phase)
        return result

    rank.loader, rank.step = itertools.repeat(batch), nothing  # type: ignore[assignment]  # stand-ins
    steps, fastest = 200, float("inf")
    for _ in range(20):
        rank.results.count = 0  # its columns have room for the steps of the run alone
        start = time.thread_time()
        for _ in range(steps):
            rank.results.count = 0
            rank._one_step()
        fastest = min(fastest, time.thread_time() - start)
    return fastest / steps


def measure(
    config: Config, directory: Path, rounds: int, steps: int, seed: int
) -> tuple[Times, float]:
    """Do all blocks of one config, whose training takes (rounds + 2) * steps steps.

    Returns:
        The blocks, and `own_cost_s`.
    """
    place = Place(run_dir=directory / "run")
    place.attempt_dir.mkdir(parents=True)
    write_identity(place.run_dir, Identity(sweep="bench", run_id="bench", config_id="bench"))
    os.environ.update(place.environment())
    device = choose_device(config.hardware, place)
    with (
        Preemption() as preemption,
        limited(config.hardware, place, device),
        Report(config, place) as report,
    ):
        rank = Trainer(config, place, device, Ranks(None), report, preemption)
        report.tracker.settle()
        sampler = UtilizationSampler(device)
        bench = Bench(rank, config, Background(report, sampler), steps)
        arms = {
            "bare": bench.bare,
            "loader": bench.loader,
            "instrumented": bench.instrumented,
        }
        with rank.loader, bench.bare_loop.loader, bench.loader_loop.loader, sampler:
            report.phase("warmup")
            check_losses(rank, config, steps)
            alternate(arms, 1, seed)
            report.phase("measure")
            sampler.open_window()
            rank.clock.open_window()
            times = alternate(arms, rounds, seed)
            rank.clock.close_window()
            sampler.close_window()
            loader = rank.loader
            own_s = own_cost_s(rank)
            loader.close()
    if report.record.warnings:
        raise RuntimeError(f"the run warns: {report.record.warnings}")
    return times, own_s


def main() -> None:
    parser = argparse.ArgumentParser(description="What the instruments cost.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2, help="of a block")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks")
    parser.add_argument("overrides", nargs="*", help=f"of the config; default {' '.join(DEFAULT)}")
    options = parser.parse_args()
    given = {word.split("=")[0] for word in options.overrides}
    total = (options.rounds + 2) * options.steps
    config = configuration(
        [
            *(word for word in DEFAULT if word.split("=")[0] not in given),
            *options.overrides,
            f"train.steps={total}",
            f"measure.warmup_steps={options.steps}",
            "measure.steps=1",
            "measure.memory=false",
        ]
    )
    if config.accum.steps != 1 or config.gpus.count != 1 or config.precision.compute == "float16":
        parser.error("the loop by hand has one rank, one micro-batch a step and no loss scaling")
    print(f"at the start: {load_line()}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        times, own_s = measure(config, Path(directory), options.rounds, options.steps, options.seed)
    print(f"at the end:   {load_line()}")
    print(describe(times, "bare"))
    for clock in ("wall", "cpu"):
        print(f"{clock} instrumented / loader: {compare(times, 'instrumented', 'loader', clock)}")
    step_ms = 1e3 * statistics.median(on_clock(times["bare"], "wall"))
    if step_ms < LEAST_STEP_MS:
        print(f"a step is shorter than {LEAST_STEP_MS:g} ms: take a larger model or batch")
    whole, cpu = (compare(times, "instrumented", "bare", clock) for clock in ("wall", "cpu"))
    print(
        f"instrumented_over_bare={whole.value:.4f} low={whole.low:.4f} high={whole.high:.4f} "
        f"cpu_time_ratio={cpu.value:.4f} cpu_low={cpu.low:.4f} cpu_high={cpu.high:.4f} "
        f"instrumented_over_loader={compare(times, 'instrumented', 'loader', 'wall').value:.4f} "
        f"cpu_over_loader={compare(times, 'instrumented', 'loader', 'cpu').value:.4f} "
        f"own_cost_us={1e6 * own_s:.1f} step_ms={step_ms:.2f} rounds={options.rounds}"
    )


if __name__ == "__main__":
    main()
