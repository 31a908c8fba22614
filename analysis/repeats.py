"""Which runs of a configuration and of its baseline make pairs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Codes
from analysis.study import Study


def imported(study: Study, base: Codes) -> npt.NDArray[np.bool_]:
    """For each configuration, whether it has a baseline, and one of the two is imported."""
    of_imported = study.remembered("imported", lambda: _of_imported(study))
    return np.asarray((of_imported | of_imported[base]) & (base >= 0), dtype=np.bool_)


def _of_imported(study: Study) -> npt.NDArray[np.bool_]:
    return study.configurations["source"].eq("imported").to_numpy(dtype=np.bool_)


def base_runs(study: Study, base: Codes) -> Codes:
    """The pairs: equal repeats of a configuration and of its baseline, both completed."""
    units = int(study.unit.max(initial=0)) + 1
    own = study.configuration * units + study.unit
    index = pd.Index(np.where(study.completed, own, -1 - np.arange(len(own))))
    paired = np.where(imported(study, base), -1, base)[study.configuration]
    wanted = np.where((paired >= 0) & study.completed, paired * units + study.unit, -(2**62))
    return index.get_indexer(pd.Index(wanted)).astype(np.int64)


def without_pairs(study: Study, base: Codes, base_run: Codes) -> npt.NDArray[np.bool_]:
    """For each configuration, whether its baseline ran, but no repeat completed in both."""
    some = np.zeros(len(base), dtype=np.bool_)
    some[study.configuration[base_run >= 0]] = True
    return np.asarray((base >= 0) & ~some & ~imported(study, base), dtype=np.bool_)
