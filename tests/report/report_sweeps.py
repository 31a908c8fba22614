"""Sweeps with known figures, written as directories with series and failures."""

from __future__ import annotations

from pathlib import Path

from analysis_records import MIB, record, write_sweep

from sweeper.record import Failure, MemoryParts, Record, StepParts

MARKUP = "</td><script>window.hacked = true</script><b>"


def parts(activations_mib: float) -> MemoryParts:
    """20 + 20 + 40 MiB of state, activations, nothing else."""
    return MemoryParts(
        parameters_bytes=20 * MIB,
        gradients_bytes=20 * MIB,
        optimizer_bytes=40 * MIB,
        activations_bytes=int(activations_mib * MIB),
        remainder_bytes=0,
    )


def steps(forward: float = 0.03, backward: float = 0.06, communication: float = 0.0) -> StepParts:
    return StepParts(
        data_wait_s=0.0,
        forward_s=forward,
        backward_s=backward,
        communication_s=communication,
        optimizer_s=0.01,
        rest_s=0.0,
    )


def full_grid(repeats: int = 1) -> list[Record]:
    """precision x ckpt x gpus on an A100; amp saves, ckpt saves and costs time, 2 GPUs help."""
    found = []
    for repeat in range(repeats):
        for precision, factor in (("fp32", 1.0), ("amp", 0.6)):
            for ckpt, kept, slower in (("off", 1.0, 1.0), ("on", 0.5, 1.25)):
                for gpus, time in ((1, 0.1), (2, 0.0625)):
                    activations = 120 * factor * kept / gpus
                    one = record(
                        precision,
                        ckpt,
                        gpus=gpus,
                        repeat=repeat,
                        memory_mib=80 + activations,
                        memory_parts=parts(activations),
                        step_s=time * slower * (0.8 if precision == "amp" else 1.0),
                        parts=steps(communication=0.02 if gpus > 1 else 0.0),
                        loss=1.0 if precision == "fp32" else 1.001,
                    )
                    found.append(one)
    return found


def out_of_memory() -> Record:
    """A run of batch 128 that does not fit, with hostile text where texts come from."""
    one = record(
        batch=128,
        status="oom",
        memory_mib=None,
        step_s=None,
        loss=None,
        validation=None,
        error=f"CUDA out of memory {MARKUP}",
    )
    one.error = Failure(
        type="OutOfMemoryError",
        message=f"CUDA out of memory {MARKUP}",
        rank=0,
        bytes_requested=64 * MIB,
        log="attempt0/rank0.err",
        log_tail="line 1\nlast words " + MARKUP,
    )
    one.hardware.device_memory_bytes = 256 * MIB
    return one


def write_series(sweep: Path) -> None:
    """Steps and utilisation of every completed run, as the running half leaves them."""
    for number, run_dir in enumerate(sorted(sweep.glob("run*"))):
        losses = "".join(
            f"{step},{2 / (step + 1) * (1 + 0.001 * number * (step > 3))},0.1,0\n"
            for step in range(12)
        )
        (run_dir / "steps.csv").write_text("step,loss,step_time_s,measured\n" + losses)
        samples = "".join(f"{second},{60 + number},{30 + number}\n" for second in range(10))
        (run_dir / "utilization.csv").write_text("elapsed_s,gpu_percent,cpu_percent\n" + samples)


def whole_sweep(root: Path) -> Path:
    """All figures, all tables, a failure, hostile texts."""
    records = [*full_grid(), record(batch=32, memory_mib=140, step_s=0.06), out_of_memory()]
    for one in records:
        one.hardware.device_memory_bytes = 256 * MIB
        one.config["note"] = MARKUP
    sweep = write_sweep(root, records)
    write_series(sweep)
    return sweep
