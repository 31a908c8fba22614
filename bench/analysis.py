"""How long the analysis takes: python bench/analysis.py

Writes 10,080 and 100,800 made-up records (3 repeats of each configuration), reads them back and
builds every table, each in a process of its own. Two cores are used where there are more.

Last line: seconds_100k=... growth_10k_to_100k=...   (10 is linear)
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from sweeper.config import Config, config_id, run_id  # noqa: E402  # found through the path above
from sweeper.record import (  # noqa: E402
    Failure,
    Hardware,
    Identity,
    Loss,
    MemoryParts,
    MemoryPeaks,
    Record,
    Software,
    Status,
    StepParts,
    Time,
    dump,
)

REPEATS = 3
CORES = 2
AXES: dict[str, tuple[Any, ...]] = {
    "model": ("dit_s_2", "dit_b_2", "vit", "lm"),
    "precision": ("fp32", "tf32", "amp", "bf16", "fp8"),
    "ckpt": ("off", "on"),
    "accum": (1, 2, 4),
    "gpus": (1, 2, 4, 8),
    "batch": (32, 48, 64, 96, 128, 192, 256),
}


def _config(cell: dict[str, Any]) -> dict[str, Any]:
    tree = asdict(Config())
    tree["model"] = {"_target_": f"models.{cell['model']}", "depth": 12, "width": 384}
    tree["data"] = {"_target_": "data.Images", "shape": [4, 32, 32]}
    tree["optim"] = {"_target_": "torch.optim.AdamW", "lr": cell["lr"]}
    tree["precision"]["name"] = cell["precision"]
    tree["ckpt"]["enabled"] = cell["ckpt"] == "on"
    tree["accum"]["steps"], tree["gpus"]["count"] = cell["accum"], cell["gpus"]
    tree["batch"]["size"] = cell["batch"]
    return tree


def _record(cell: dict[str, Any], repeat: int) -> Record:
    tree = _config(cell)
    identity = config_id(tree)
    noise = random.Random(f"{identity}{repeat}")
    small = 0.6 if cell["precision"] not in ("fp32", "tf32") else 1.0
    checkpointed = cell["ckpt"] == "on"
    memory = 2**30 * cell["batch"] / 32 / cell["gpus"] * small * (0.5 if checkpointed else 1.0)
    seconds = cell["batch"] / 320 / cell["gpus"] ** 0.9 * (1.3 if checkpointed else 1.0)
    seconds *= (0.7 if small < 1 else 1.0) * noise.uniform(0.98, 1.02)
    record = Record(
        identity=Identity(
            sweep="bench",
            run_id=run_id("bench", identity, repeat),
            config_id=identity,
            repeat=repeat,
            overrides=[f"{'batch.size' if k == 'batch' else k}={v}" for k, v in cell.items()],
            choices={k: str(v) for k, v in cell.items() if k not in ("batch", "lr")},
            variant="+".join(f"{k}={v}" for k, v in cell.items()),
            command="python train.py",
        ),
        status=Status.COMPLETED,
        phase="done",
        config=tree,
    )
    record.hardware = Hardware(
        device="cuda", device_name="A100", world_size=cell["gpus"], nodes=1, hosts=["a"]
    )
    record.software = Software(python="3.11", torch="2.13.0", cuda="12.8", git_commit="0")
    if noise.random() < 0.02:
        record.status, record.phase = Status.OOM, "warmup"
        record.error = Failure(type="OutOfMemoryError", message="Tried to allocate 2.00 GiB")
        return record
    record.memory.warm = MemoryPeaks(peak_allocated_bytes=int(memory))
    part = int(memory / 8)
    record.memory.parts = MemoryParts(
        parameters_bytes=part,
        gradients_bytes=part,
        optimizer_bytes=2 * part,
        activations_bytes=4 * part,
    )
    record.time = Time(
        step_time_s=seconds,
        step_time_q1_s=seconds * 0.99,
        step_time_q3_s=seconds * 1.01,
        samples_per_s=cell["batch"] / seconds,
        steady=True,
        host_bound=False,
        parts=StepParts(
            data_wait_s=0.02 * seconds,
            forward_s=0.3 * seconds,
            backward_s=0.5 * seconds,
            communication_s=0.1 * seconds,
            optimizer_s=0.08 * seconds,
            rest_s=0.0,
        ),
    )
    loss = 1 + noise.uniform(-1e-4, 1e-4)
    record.loss = Loss(
        train_first=2.0, train_last=loss, validation_first=2.1, validation_last=loss + 0.1
    )
    record.numerics.compute_dtype, record.numerics.global_batch = "float32", cell["batch"]
    return record


def _cells(rates: int) -> Iterator[dict[str, Any]]:
    axes = {**AXES, "lr": tuple(1e-4 * (i + 1) for i in range(rates))}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _write(root: Path, cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        for repeat in range(REPEATS):
            record = _record(cell, repeat)
            run_dir = root / f"run-{record.identity.run_id}"
            run_dir.mkdir()
            (run_dir / "record.json").write_text(dump(record))


def write_records(root: Path, rates: int) -> int:
    """Write 10,080 records for each of `rates` learning rates; returns their number."""
    root.mkdir(parents=True)
    cells = list(_cells(rates))
    with ProcessPoolExecutor(CORES) as pool:
        list(pool.map(_write, [root] * 20, [cells[i::20] for i in range(20)]))
    return len(cells) * REPEATS


def measure(root: Path) -> None:
    """Load and build in this process; prints seconds of each as JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    start = time.perf_counter()
    from analysis.load import load
    from analysis.study import Study
    from analysis.tables import build_all

    imported = time.perf_counter()
    found = load([root])
    read = time.perf_counter()
    tables = build_all(Study(found))
    done = time.perf_counter()
    rows = {table.name: len(table.frame) for table in tables}
    seconds = {"import": imported - start, "load": read - imported, "tables": done - read}
    print(json.dumps({"records": len(found.frame), **seconds, "all": done - start, "rows": rows}))


def _measured(root: Path, repeats: int) -> float:
    """Seconds for everything, the best of some processes."""
    best = float("inf")
    for _ in range(repeats):
        command = [sys.executable, __file__, "--measure", str(root)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(done.stdout.strip(), flush=True)
        best = min(best, float(json.loads(done.stdout)["all"]))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, help="measure on these records, and nothing else")
    parser.add_argument(
        "--repeats", type=int, default=3, help="processes per size; the best counts"
    )
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as directory:
        small, large = Path(directory, "10k"), Path(directory, "100k")
        for root, rates in ((small, 1), (large, 10)):
            start = time.perf_counter()
            count = write_records(root, rates)
            print(f"{count:,} records written in {time.perf_counter() - start:.0f} s", flush=True)
        seconds = [_measured(root, options.repeats) for root in (small, large)]
    print(f"seconds_100k={seconds[1]:.2f} growth_10k_to_100k={seconds[1] / seconds[0]:.2f}")


if __name__ == "__main__":
    main()
