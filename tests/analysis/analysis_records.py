"""Records with known figures, written as a sweep directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.table import Table
from sweeper.record import (
    Failure,
    Hardware,
    Identity,
    Loss,
    Memory,
    MemoryParts,
    MemoryPeaks,
    Numerics,
    Record,
    Software,
    Status,
    StepParts,
    Time,
    to_plain,
    write_identity,
    write_record,
)

MIB = 2**20


def config(**changed: Any) -> dict[str, Any]:
    """A resolved config; `changed` takes dotted keys with `__` for the dot."""
    tree: dict[str, Any] = {
        "model": {"_target_": "sweeper.models.dit.DiT", "depth": 4},
        "data": {"_target_": "sweeper.data.noise.Noise"},
        "optim": {"_target_": "torch.optim.AdamW", "lr": 1e-3},
        "precision": {"name": "fp32", "compute": "float32", "autocast": False},
        "ckpt": {"enabled": False, "blocks": None},
        "accum": {"steps": 1},
        "gpus": {"count": 1},
        "batch": {"size": 64, "per_gpu": None},
        "train": {"steps": 40, "minutes": 60.0},
        "seed": 0,
    }
    for key, value in changed.items():
        node = tree
        *path, last = key.split("__")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def record(
    precision: str = "fp32",
    ckpt: str = "off",
    accum: int = 1,
    gpus: int = 1,
    *,
    repeat: int = 0,
    sweep: str = "s",
    status: str = "completed",
    memory_mib: float | None = 100.0,
    step_s: float | None = 0.1,
    loss: float | None = 1.0,
    validation: float | None = 1.1,
    batch: int = 64,
    device: str = "cuda",
    device_name: str | None = "A100",
    error: str | None = None,
    parts: StepParts | None = None,
    memory_parts: MemoryParts | None = None,
    overrides: list[str] | None = None,
    torch: str = "2.13.0",
    run_id: str | None = None,
    config_id: str | None = None,
    **changed: Any,
) -> Record:
    """One record; figures that are None were not measured."""
    tree = config(
        precision__name=precision,
        precision__autocast=precision == "amp",
        ckpt__enabled=ckpt == "on",
        accum__steps=accum,
        gpus__count=gpus,
        batch__size=batch,
        **changed,
    )
    typed = {"precision": precision, "ckpt": ckpt, "accum": str(accum), "gpus": str(gpus)}
    typed_list = [f"{k}={v}" for k, v in typed.items()]
    typed_list += [f"{k.replace('__', '.')}={v}" for k, v in changed.items()]
    name = f"{precision}-{ckpt}-{accum}-{gpus}-{batch}-{device_name}-{sorted(changed.items())}"
    peaks = MemoryPeaks()
    if memory_mib is not None:
        size = int(memory_mib * MIB)
        peaks = (
            MemoryPeaks(peak_allocated_bytes=size)
            if device == "cuda"
            else MemoryPeaks(peak_tensor_bytes=size)
        )
    return Record(
        identity=Identity(
            sweep=sweep,
            run_id=run_id or f"{sweep}-{name}-{repeat}",
            config_id=config_id or name,
            repeat=repeat,
            overrides=typed_list if overrides is None else overrides,
            choices={"model": "dit_s", "data": "noise", "optim": "adamw", **typed},
            variant=f"precision={precision}+ckpt={ckpt}",
            command="python train.py precision=" + precision,
        ),
        status=Status(status),
        phase="done" if status == "completed" else "measure",
        error=Failure(type="Error", message=error) if error else None,
        config=tree,
        memory=Memory(warm=peaks, parts=memory_parts or MemoryParts()),
        time=Time(
            clock="cuda_event" if device == "cuda" else "host",
            step_time_s=step_s,
            step_time_q1_s=None if step_s is None else step_s * 0.98,
            step_time_q3_s=None if step_s is None else step_s * 1.02,
            samples_per_s=None if step_s is None else batch / step_s,
            steady=True,
            host_bound=False,
            parts=parts or StepParts(),
        ),
        loss=Loss(
            train_first=None if loss is None else 2.0,
            train_last=loss,
            validation_first=None if validation is None else 2.2,
            validation_last=validation,
        ),
        numerics=Numerics(
            precision=precision,
            global_batch=batch,
            micro_batch=batch // (accum * gpus),
            accumulation=accum,
        ),
        hardware=Hardware(
            device=device,
            device_name=device_name,
            world_size=gpus,
            cpu_name="EPYC" if device == "cpu" else None,
            cpu_count=2 if device == "cpu" else None,
        ),
        software=Software(python="3.11.2", torch=torch),
    )


def write_sweep(root: Path, records: list[Record]) -> Path:
    """A sweep directory with one run directory for each record."""
    root.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(records):
        run_dir = root / f"run{number:03d}"
        run_dir.mkdir()
        write_identity(run_dir, one.identity)
        write_record(run_dir, one)
    return root


def plain(one: Record) -> Any:
    """The record as `json.load` would give it."""
    return json.loads(json.dumps(to_plain(one)))


def row(table: Table, **values: Any) -> pd.Series[Any]:
    """The one row of a table with these values of axes, or of other columns."""
    frame = table.frame
    for name, value in values.items():
        column = f"axis.{name}" if f"axis.{name}" in frame.columns else name
        frame = frame[frame[column] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]
