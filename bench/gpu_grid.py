"""Runs the flagship grid within a time budget; bench/gpu.sh calls it.

Each model is a sweep of its own, smallest batches first, one run at a time. A model may take an
equal share of the time that is left, and what it does not need is the next one's. Where its time is
up, its sweep is stopped as by Ctrl-C. Every cell of the grid is accounted for in cells.csv and
printed: with the status of its record, or as left out for want of time.

Writes to the output directory: machine.txt, sweeps/ with all records, tables/, and cells.csv, whose
last columns set the measured peak beside an estimate where --estimates has one of the same
configuration.

Last line: cells=... completed=... oom=... failed=... left_out=... seconds=...
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from sweeper.record import RECORD_FILE, Record, Status, read_record  # noqa: E402  # found by the path above

WRONG_INPUT = 2  # exit code of train.py: nothing was started
LEFT_OUT = "left out: no time"
RESERVE_S = 30.0  # for the tables, and for a run that takes its time to stop
LEAST_S = 20.0  # below this not even a first run would come to its end
STOP_S = 15.0  # from one signal to the next, harder one
ON_GPU = {
    "models": "dit_s_2,dit_b_2,dit_l_2,dit_xl_2",
    "precision": "fp32,tf32,amp",
    "ckpt": "off,on",
    "batch": "16,32,64,128",
    "steps": 16,
    "warmup": 5,
}
ON_CPU = {
    "models": "dit_tiny",
    "precision": "fp32,amp",
    "ckpt": "off,on",
    "batch": "4,8",
    "steps": 6,
    "warmup": 2,
}


@dataclass
class Cell:
    """One line of cells.csv."""

    model: str
    precision: str
    ckpt: str
    batch: int
    status: str = LEFT_OUT
    peak_bytes: int | None = None
    step_time_s: float | None = None
    samples_per_s: float | None = None
    mfu: float | None = None
    estimated_bytes: int | None = None
    measured_over_estimated: float | None = None
    run_dir: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.model, self.precision, self.ckpt, self.batch


def records(directory: Path) -> dict[tuple[str, str, str, int], tuple[Record, Path]]:
    """All records below, by the cell they are of; where several are of one, the latest."""
    found = {}
    every = [(read_record(path), path) for path in directory.rglob(RECORD_FILE)]
    for record, path in sorted(every, key=lambda item: item[0].finished_at or ""):
        names = record.identity.choices
        key = names["model"], names["precision"], names["ckpt"], record.config["batch"]["size"]
        found[key] = record, path.parent
    return found


def estimates(directory: Path | None) -> dict[str, int]:
    """Estimated peaks by config id."""
    if directory is None:
        return {}
    every = map(read_record, sorted(directory.rglob(RECORD_FILE)))
    peaks = {
        r.identity.config_id: r.memory.warm.headline_bytes for r in every if r.source == "estimate"
    }
    return {config_id: peak for config_id, peak in peaks.items() if peak is not None}


def command(model: str, options: argparse.Namespace, output: Path) -> list[str]:
    device = "cpu" if options.cpu else "cuda"
    return [
        sys.executable,
        str(ROOT / "train.py"),
        "-m",
        f"model={model}",
        f"batch.size={options.batch}",  # varies slowest: a batch is complete before the next
        f"precision={options.precision}",
        f"ckpt={options.ckpt}",
        "data=synthetic",
        "tracker=none",
        f"hardware.device={device}",
        f"train.steps={options.steps}",
        f"measure.warmup_steps={options.warmup}",
        f"measure.steps={options.steps - options.warmup - 1}",
        f"evaluate.samples={options.evaluate}",
        "hydra.launcher.order=given",
        "hydra.launcher.max_parallel=1",
        f"sweep.dir={output / 'sweeps'}",
        f"sweep.name={model}",
        *options.overrides,
    ]


def run(arguments: Sequence[str], seconds: float) -> int | None:
    """Run a sweep for so long at most; returns its exit code, None where it was stopped."""
    process = subprocess.Popen(arguments, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    for number in (signal.SIGINT, signal.SIGINT):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return None


def fill(cells: Sequence[Cell], output: Path, estimated: dict[str, int]) -> None:
    found = records(output / "sweeps") if (output / "sweeps").exists() else {}
    for cell in cells:
        if cell.key not in found:
            continue
        record, run_dir = found[cell.key]
        cell.status = record.status.value
        if record.status is Status.CANCELLED:  # by us, in the middle of it
            cell.status = LEFT_OUT
        cell.run_dir = str(run_dir.relative_to(output))
        cell.peak_bytes = record.memory.warm.headline_bytes
        cell.step_time_s = record.time.step_time_s
        cell.samples_per_s, cell.mfu = record.time.samples_per_s, record.time.mfu
        cell.estimated_bytes = estimated.get(record.identity.config_id)
        if cell.estimated_bytes and cell.peak_bytes:
            cell.measured_over_estimated = cell.peak_bytes / cell.estimated_bytes


def write(cells: Sequence[Cell], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(Cell)])
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)


def tell_of_estimates(cells: Sequence[Cell], given: Path | None) -> None:
    ratios = {c.key: c.measured_over_estimated for c in cells if c.measured_over_estimated}
    if given is None:
        print("no estimates given (--estimates): measured memory is compared with none")
    elif not ratios:
        print(f"{given} has no estimate of a configuration that was measured")
    for key, ratio in ratios.items():
        print(f"measured / estimated peak of {' '.join(map(str, key))}: {ratio:.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The flagship grid within a time budget.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--cpu", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything")
    parser.add_argument("--models")
    parser.add_argument("--precision")
    parser.add_argument("--ckpt")
    parser.add_argument("--batch")
    parser.add_argument("--steps", type=int, help="of each run, warm-up included")
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--evaluate", type=int, default=64, help="held-out samples")
    parser.add_argument("--estimates", type=Path, help="directory with records of estimates")
    parser.add_argument("overrides", nargs="*", help="of the config, e.g. hardware.threads=1")
    options = parser.parse_intermixed_args()
    for name, value in (ON_CPU if options.cpu else ON_GPU).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main() -> int:
    start_s = time.monotonic()
    options = arguments()
    end_s = start_s + options.minutes * 60
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    models = options.models.split(",")
    grid = [options.batch.split(","), options.precision.split(","), options.ckpt.split(",")]
    cells = [
        Cell(model, precision, ckpt, int(batch))
        for model in models
        for batch, precision, ckpt in itertools.product(*grid)
    ]
    machine = subprocess.run(
        [sys.executable, "-m", "sweeper.devices"], capture_output=True, text=True, check=False
    )
    (output / "machine.txt").write_text(machine.stdout + machine.stderr)
    print(machine.stdout + machine.stderr, flush=True)

    codes: dict[str, int | None] = {}
    for number, model in enumerate(models):
        left_s = end_s - RESERVE_S - time.monotonic()
        share_s = left_s / (len(models) - number) if number < len(models) - 1 else left_s
        if share_s < LEAST_S:
            print(f"{model}: not started, {max(left_s, 0):.0f} s are left", flush=True)
            continue
        print(f"{model}: up to {share_s:.0f} s", flush=True)
        codes[model] = run(command(model, options, output), share_s)
        how = f"exit code {codes[model]}" if codes[model] is not None else "stopped in time"
        print(f"{model}: {how}", flush=True)

    fill(cells, output, estimates(options.estimates))
    for cell in cells:
        code = codes.get(cell.model)
        refused = code == WRONG_INPUT  # what is on record is not of this command
        if code is not None and (refused or cell.status == LEFT_OUT):
            cell.status = f"failed: the sweep ended with exit code {code}"
    write(cells, output / "cells.csv")
    sweeps = [str(path) for path in sorted((output / "sweeps").glob("*")) if path.is_dir()]
    if sweeps:
        tables = ["report", *sweeps, "--output", str(output / "tables")]
        subprocess.run([sys.executable, "-m", "analysis", *tables], cwd=ROOT, check=False)
    for cell in cells:
        if cell.status != "completed":
            print(f"{' '.join(map(str, cell.key))}: {cell.status}")
    tell_of_estimates(cells, options.estimates)
    count = Counter(cell.status for cell in cells)
    left_out = count.pop(LEFT_OUT, 0)
    rest = sum(count.values()) - count["completed"] - count["oom"]
    print(
        f"cells={len(cells)} completed={count['completed']} oom={count['oom']} failed={rest} "
        f"left_out={left_out} seconds={time.monotonic() - start_s:.0f}"
    )
    return 1 if rest else 0


if __name__ == "__main__":
    sys.exit(main())
