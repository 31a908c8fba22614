"""The figures of a sweep's tables, calculated from its record.json files by plain arithmetic.

It shares no code with the analysis, and knows nothing but the keys of a record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Run = dict[str, Any]
Runs = dict[tuple[str, str, int], Run]
Expected = dict[tuple[str, ...], dict[str, float]]

BASELINE = ("fp32", "off", 1)
MEMORY_PARTS = [
    "parameters",
    "gradients",
    "optimizer",
    "ema",
    "buckets",
    "activations",
    "data",
    "remainder",
]
TIME_PARTS = ["data_wait", "forward", "backward", "communication", "optimizer", "rest"]


def read_runs(sweep_dir: Path) -> Runs:
    runs: Runs = {}
    for path in sweep_dir.glob("*/record.json"):
        run = json.loads(path.read_text("utf-8"))
        choices = run["identity"]["choices"]
        runs[choices["precision"], choices["ckpt"], int(choices["gpus"])] = run
    return runs


def peak(run: Run) -> float:
    return float(run["memory"]["warm"]["peak_tensor_bytes"])


def step(run: Run) -> float:
    return float(run["time"]["step_time_s"])


def loss(run: Run) -> float:
    return float(run["loss"]["validation_last"])


def saved(old: float, new: float) -> float:
    return 100 - 100 * new / old


def more(old: float, new: float) -> float:
    return 100 * new / old - 100


def runs_table(runs: Runs) -> Expected:
    base = runs[BASELINE]
    return {
        (precision, ckpt, str(gpus)): {
            "peak_bytes": peak(run),
            "memory_vs_baseline_percent": more(peak(base), peak(run)),
            "step_time_s": step(run),
            "step_time_vs_baseline_percent": more(step(base), step(run)),
            "samples_per_s": 64 / step(run),
            "throughput_vs_baseline_percent": more(1 / step(base), 1 / step(run)),
            "validation_loss_last": loss(run),
            "validation_loss_vs_baseline_percent": more(loss(base), loss(run)),
        }
        for (precision, ckpt, gpus), run in runs.items()
    }


def _effect(old: Run, new: Run) -> dict[str, float]:
    return {
        "base_peak_bytes": peak(old),
        "peak_bytes": peak(new),
        "memory_saved_percent": saved(peak(old), peak(new)),
        "time_saved_percent": saved(step(old), step(new)),
        "speed_percent": more(step(new), step(old)),
        "validation_loss_percent": more(loss(old), loss(new)),
    }


def precision_table(runs: Runs) -> Expected:
    return {
        (ckpt, str(gpus)): _effect(runs["fp32", ckpt, gpus], run)
        for (precision, ckpt, gpus), run in runs.items()
        if precision == "amp"
    }


def checkpointing_table(runs: Runs) -> Expected:
    return {
        (precision, str(gpus)): _effect(runs[precision, "off", gpus], run)
        for (precision, ckpt, gpus), run in runs.items()
        if ckpt == "on"
    }


def combined_table(runs: Runs) -> Expected:
    found: Expected = {}
    for gpus in (1, 4, 8):
        plain, both = runs["fp32", "off", gpus], runs["amp", "on", gpus]
        amp, ckpt = runs["amp", "off", gpus], runs["fp32", "on", gpus]
        kept = peak(amp) / peak(plain) * peak(ckpt) / peak(plain)
        pace = step(plain) / step(amp) * step(plain) / step(ckpt)
        found[(str(gpus),)] = {
            "memory_saved_precision_percent": saved(peak(plain), peak(amp)),
            "memory_saved_precision_with_ckpt_percent": saved(peak(ckpt), peak(both)),
            "memory_saved_ckpt_percent": saved(peak(plain), peak(ckpt)),
            "memory_saved_ckpt_with_precision_percent": saved(peak(amp), peak(both)),
            "memory_saved_both_percent": saved(peak(plain), peak(both)),
            "memory_saved_product_percent": 100 * (1 - kept),
            "speed_both_percent": more(step(both), step(plain)),
            "speed_product_percent": 100 * (pace - 1),
        }
    return found


def scaling_table(runs: Runs) -> Expected:
    found: Expected = {}
    for (precision, ckpt, gpus), run in runs.items():
        one = runs[precision, ckpt, 1]
        speed_up = step(one) / step(run)
        found[precision, ckpt, str(gpus)] = {
            "speed_up": speed_up,
            "efficiency_percent": 100 * speed_up / gpus,
            "memory_change_percent": more(peak(one), peak(run)),
        }
    return found


def memory_table(runs: Runs) -> Expected:
    found: Expected = {}
    for (precision, ckpt, gpus), run in runs.items():
        parts = run["memory"]["parts"]
        row = {f"{part}_bytes": float(parts[f"{part}_bytes"] or 0) for part in MEMORY_PARTS}
        formula = sum(row[f"{p}_bytes"] for p in MEMORY_PARTS[:3]) + row["activations_bytes"]
        row["peak_bytes"] = sum(row.values())
        row["peak_over_formula"] = row["peak_bytes"] / formula
        row["activations_over_parameters"] = row["activations_bytes"] / row["parameters_bytes"]
        found[precision, ckpt, str(gpus)] = row
    return found


def step_time_table(runs: Runs) -> Expected:
    found: Expected = {}
    for (precision, ckpt, gpus), run in runs.items():
        parts = run["time"]["parts"]
        known = [part for part in TIME_PARTS if parts[f"{part}_s"] is not None]
        row = {f"{part}_s": float(parts[f"{part}_s"]) for part in known}
        found[precision, ckpt, str(gpus)] = {**row, "step_time_mean_s": sum(row.values())}
    return found


# Table -> the columns that name its rows, and its figures by them.
TABLES = {
    "runs": (("precision", "ckpt", "gpus"), runs_table),
    "memory": (("precision", "ckpt", "gpus"), memory_table),
    "step_time": (("precision", "ckpt", "gpus"), step_time_table),
    "precision": (("ckpt", "gpus"), precision_table),
    "checkpointing": (("precision", "gpus"), checkpointing_table),
    "combined": (("gpus",), combined_table),
    "scaling": (("precision", "ckpt", "gpus"), scaling_table),
}
