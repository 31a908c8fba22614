"""What a sweeper gets back for each job."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobRuntime, JobStatus
from omegaconf import OmegaConf

from sweeper.launch.errors import RunFailed
from sweeper.launch.launcher import Outcome
from sweeper.record import Status


class RecordedReturn(JobReturn):
    """Of a run that keeps a record. It raises as Hydra's does, without printing a line of its own:
    how the run ended has been said already."""

    @property
    def return_value(self) -> Any:
        assert self.status is not JobStatus.UNKNOWN, "the run has not ended"
        if self.status is JobStatus.FAILED:
            raise self._return_value
        return self._return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value


def job_return(outcome: Outcome, overrides: Sequence[str], real: JobReturn | None) -> JobReturn:
    """The job's return: the task's own where it has one, otherwise one made from the record.

    An application that keeps records gets a failure for a run whose status is one. Out of memory
    and skipped are results: they return nothing.

    Args:
        outcome: of the run that answers for the job.
        overrides: of this job.
        real: what the task returned or raised.
    """
    run, record = outcome.run, outcome.record
    completed = record.status is Status.COMPLETED
    says = real is not None and (completed or real.status is JobStatus.FAILED)
    if real is not None and says and not run.writes_record:
        return real
    result = _described(outcome) if run.writes_record or real is None else copy.copy(real)
    result.overrides = list(overrides)
    failed = record.status.is_failure if run.writes_record else not completed
    if failed:
        message = record.error.message if record.error is not None else record.status.value
        result.status = JobStatus.FAILED
        result.return_value = RunFailed(run.identity, record.status, message)
    else:
        value = real._return_value if real is not None and completed else run.return_value
        result.status = JobStatus.COMPLETED
        result.return_value = value
    return result


def _described(outcome: Outcome) -> JobReturn:
    result = RecordedReturn() if outcome.run.writes_record else JobReturn()
    result.task_name = JobRuntime.instance().get("name")
    if outcome.run.writes_record:
        result.working_dir = str(outcome.run.run_dir)
        return result
    config = outcome.run.config.unpack()
    result.cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    result.hydra_cfg = OmegaConf.masked_copy(config, "hydra")
    # As set_config does, which would copy it again.
    HydraConfig.instance().cfg = result.hydra_cfg  # type: ignore[assignment]  # Hydra's own habit
    result.working_dir = str(Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir))
    return result
