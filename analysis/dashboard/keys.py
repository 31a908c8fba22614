"""The keys under which the tracker mirrors a run to W&B; a test holds them to the tracker's."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """A figure of the W&B summary."""

    key: str
    title: str
    unit: str

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


PEAK = Measure("memory/peak_mib", "Peak memory", "MiB")
STEP_TIME = Measure("perf/step_time_ms", "Step time", "ms")
THROUGHPUT = Measure("perf/samples_per_s", "Throughput", "samples per s")
LOSS = Measure("loss/validation", "Validation loss", "")

# Series, and the x axis of every one of them.
STEP = "train/step"
TRAIN_LOSS = "train/loss"

# Flat config keys to group by; panels group by one key, so the variant is one.
VARIANT = "variant"
TECHNIQUES = ("precision", "ckpt", "accum", "gpus")

STATUS = "status"

# The run that holds tables and figures is told from the sweep's own by its job type.
REPORT_JOB = "report"
