"""The axes that change how many samples a device works on at a time."""

from __future__ import annotations

import numpy as np

from analysis.study import Floats, Study

BATCH_AXES = ("accum", "batch.size", "batch.per_gpu")


def micro_batches(study: Study) -> Floats:
    """For each configuration, samples per rank per backward."""
    runs = study.configurations["run"].to_numpy()
    return np.asarray(study.frame["micro_batch"].to_numpy()[runs], dtype=np.float64)
