"""The memory that a run may use."""

from __future__ import annotations

import numpy as np

from analysis.study import Floats, Study


def limits(study: Study) -> Floats:
    """For each configuration the limit that was asked for, or the memory of its GPU, B.

    NaN where neither is known. A CPU's memory is shared with all else on the machine: no limit.
    """
    asked = study.mean("hardware.memory_limit_bytes")
    on_gpu = study.frame["hardware.device"].iloc[study.configurations["run"]].to_numpy() == "cuda"
    whole = np.where(on_gpu, study.mean("hardware.device_memory_bytes"), np.nan)
    return np.where(np.isnan(asked), whole, asked)
