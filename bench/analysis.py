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
    Hardware,
    Identity,
    Record,
    Software,
    Status,
    to_plain,
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


def _template() -> dict[str, Any]:
    """A record as plain JSON values, to be filled in."""
    tree = asdict(Config())
    tree["model"] = {"_target_": "models.DiT", "depth": 12, "width": 384}
    tree["data"] = {"_target_": "data.Images", "shape": [4, 32, 32]}
    tree["optim"] = {"_target_": "torch.optim.AdamW", "lr": 1e-4}
    record = Record(
        identity=Identity(sweep="bench", run_id="", config_id="", command="python train.py"),
        status=Status.COMPLETED,
        phase="done",
        config=tree,
        hardware=Hardware(device="cuda", device_name="A100", nodes=1, hosts=["a"]),
        software=Software(python="3.11", torch="2.13.0", cuda="12.8", git_commit="0"),
    )
    plain: dict[str, Any] = to_plain(record)
    return plain


def _fill(data: dict[str, Any], cell: dict[str, Any]) -> None:
    """What all repeats of a configuration have in common."""
    tree, gpus, batch = data["config"], cell["gpus"], cell["batch"]
    tree["model"]["_target_"] = f"models.{cell['model']}"
    tree["optim"]["lr"], tree["precision"]["name"] = cell["lr"], cell["precision"]
    tree["ckpt"]["enabled"] = cell["ckpt"] == "on"
    tree["accum"]["steps"], tree["gpus"]["count"] = cell["accum"], gpus
    tree["batch"]["size"] = batch
    typed = {"batch.size" if k == "batch" else k: v for k, v in cell.items()}
    data["identity"] |= {
        "config_id": config_id(tree),
        "overrides": [f"{k}={v}" for k, v in typed.items()],
        "choices": {k: str(v) for k, v in cell.items() if k not in ("batch", "lr")},
        "variant": "+".join(f"{k}={v}" for k, v in cell.items()),
    }
    data["hardware"]["world_size"] = gpus
    data["numerics"] |= {"compute_dtype": "float32", "global_batch": batch}


def _measure(data: dict[str, Any], cell: dict[str, Any], repeat: int) -> None:
    """The figures of one repeat: made up, with some noise; 2 % run out of memory."""
    identity = data["identity"]
    identity |= {"repeat": repeat, "run_id": run_id("bench", identity["config_id"], repeat)}
    noise = random.Random(identity["run_id"])
    small = 0.6 if cell["precision"] not in ("fp32", "tf32") else 1.0
    checkpointed = cell["ckpt"] == "on"
    memory = 2**30 * cell["batch"] / 32 / cell["gpus"] * small * (0.5 if checkpointed else 1.0)
    step = cell["batch"] / 320 / cell["gpus"] ** 0.9 * (1.3 if checkpointed else 1.0)
    step *= (0.7 if small < 1 else 1.0) * noise.uniform(0.98, 1.02)
    failed = noise.random() < 0.02
    part = None if failed else int(memory / 8)
    loss = 1 + noise.uniform(-1e-4, 1e-4)
    data["status"] = "oom" if failed else "completed"
    data["error"] = {"type": "OutOfMemoryError", "message": "Tried 2.00 GiB"} if failed else None
    data["memory"]["warm"]["peak_allocated_bytes"] = None if failed else int(memory)
    for name, parts in (("parameters", 1), ("gradients", 1), ("optimizer", 2), ("activations", 4)):
        data["memory"]["parts"][f"{name}_bytes"] = part and parts * part
    shares = {"data_wait": 0.02, "forward": 0.3, "backward": 0.5, "communication": 0.1}
    for name, share in {**shares, "optimizer": 0.08, "rest": 0.0}.items():
        data["time"]["parts"][f"{name}_s"] = None if failed else share * step
    figures = {
        "step_time_s": step,
        "step_time_q1_s": step * 0.99,
        "step_time_q3_s": step * 1.01,
        "samples_per_s": cell["batch"] / step,
    }
    data["time"] |= {name: None if failed else value for name, value in figures.items()}
    losses = {"train_first": 2.0, "train_last": loss, "validation_last": loss + 0.1}
    data["loss"] |= {name: None if failed else value for name, value in losses.items()}


def _cells(rates: int) -> Iterator[dict[str, Any]]:
    axes = {**AXES, "lr": tuple(1e-4 * (i + 1) for i in range(rates))}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _write(root: Path, cells: list[dict[str, Any]]) -> None:
    data = _template()
    for cell in cells:
        _fill(data, cell)
        for repeat in range(REPEATS):
            _measure(data, cell, repeat)
            run_dir = root / f"run-{data['identity']['run_id']}"
            run_dir.mkdir()
            (run_dir / "record.json").write_text(json.dumps(data, indent=1) + "\n")


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
