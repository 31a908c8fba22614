"""Arrays of jobs: runs that need the same are submitted together."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor
from submitit.core.utils import DelayedSubmission, FailedJobError, FailedSubmissionError, JobPaths

from sweeper.errors import UserError
from sweeper.launch.attempt import Attempt
from sweeper.launch.environment import clean
from sweeper.launch.slurm_note import SLURM_FILE, SlurmNote
from sweeper.launch.slurm_request import group_key, parameters
from sweeper.launch.slurm_states import find_job
from sweeper.launch.slurm_task import SlurmTask
from sweeper.record import RECORD_FILE

# What sbatch says where it is not the jobs' fault: the controller is busy, restarts, or is full.
_PASSING = re.compile(
    r"timed out|Unable to contact|temporar|try again|backup|connection|submit limit|SubmitJob",
    re.IGNORECASE,
)
RETRY_AFTER_S = (1.0, 4.0, 15.0)

# Slurm's own default for the longest array (MaxArraySize = 1001).
MOST_ELEMENTS = 1000


@dataclass(eq=False)
class Element:
    """One run on its way into an array."""

    attempt: Attempt
    task: SlurmTask
    function: Callable[[], Any]
    note: SlurmNote | None = None


def groups(elements: Sequence[Element]) -> list[list[Element]]:
    """Those that can share an array, in the order of their first."""
    found: dict[str, list[Element]] = {}
    for element in elements:
        found.setdefault(group_key(element.attempt.run.resources), []).append(element)
    return [
        group[start : start + MOST_ELEMENTS]
        for group in found.values()
        for start in range(0, len(group), MOST_ELEMENTS)
    ]


def submit_group(group: Sequence[Element], folder: Path, most: int | None) -> str | None:
    """Submit one array; each element then has its note, in the run's directory, too.

    Args:
        group: of equal needs.
        folder: for pickles and job logs.
        most: running elements at a time; None = as many as fit.

    Returns:
        Why Slurm refuses it for good, or None.

    Raises:
        UserError: an option cannot be passed on; or Slurm does not take jobs at the moment, and the
            runs are as they were.
    """
    name = f"sweeper-{uuid.uuid4().hex[:8]}"
    tasks = [_prepare(element, name, index, folder) for index, element in enumerate(group)]
    refused = _submit(group, tasks, name, folder, most)
    for pause_s in RETRY_AFTER_S:
        if refused is None or not _PASSING.search(refused):
            return refused
        time.sleep(pause_s)
        if _was_taken(group):  # though the answer was lost
            return None
        refused = _submit(group, tasks, name, folder, most)
    if refused is not None and _PASSING.search(refused):
        raise UserError(
            "hydra/launcher",
            f"Slurm does not take {len(group)} of the jobs now: {refused}",
            "give the same command again later; what it has taken goes on",
        )
    return refused


def _was_taken(group: Sequence[Element]) -> bool:
    """Whether the array is in the queue after all; its elements then have their numbers."""
    for element in group:
        assert element.note is not None
        job = find_job(element.note.name, element.note.index)
        if job is None:
            return False
        element.note.job = job
        element.note.write(element.attempt.run.run_dir)
    return True


def _submit(
    group: Sequence[Element], tasks: Sequence[SlurmTask], name: str, folder: Path, most: int | None
) -> str | None:
    """Once; returns what Slurm says against it, or None."""
    executor = SlurmExecutor(folder / "%j", max_num_timeout=0)
    try:
        executor.update_parameters(
            job_name=name,
            array_parallelism=most or len(group),
            **parameters(group[0].attempt.run.resources),
        )
    except (NameError, ValueError, TypeError) as error:
        raise UserError("hydra.launcher", str(error), "see docs/slurm.md") from error
    try:
        with _outside_of_any_job(), executor.batch():
            jobs = [executor.submit(task) for task in tasks]
    except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines()
        return lines[-1].removeprefix("sbatch: error: ") if lines else type(error).__name__
    for element, job in zip(group, jobs, strict=True):
        assert element.note is not None
        element.note.job = job.job_id
        element.note.write(element.attempt.run.run_dir)
    return None


def _prepare(element: Element, name: str, index: int, folder: Path) -> SlurmTask:
    """Leave what the rank calls where the task finds it, and say whose the run is from now on."""
    note = SlurmNote(name=name, index=index, base=element.attempt.number, folder=str(folder))
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    DelayedSubmission(element.function).dump(
        JobPaths(runs, job_id=note.submission).submitted_pickle
    )
    note.write(element.attempt.run.run_dir)
    element.note = note
    return dataclasses.replace(element.task, submission=note.submission, folder=runs)


@contextlib.contextmanager
def _outside_of_any_job() -> Iterator[None]:
    """Inside salloc, sbatch would take the allocation's options for its own."""
    before = dict(os.environ)
    conf = {name: value for name, value in before.items() if name == "SLURM_CONF"}
    os.environ.clear()
    os.environ.update({**clean(before), **conf})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def job_log(folder: Path, job: str | None) -> Path:
    """What srun and the first task of a job wrote to their standard error."""
    paths = JobPaths(folder / "%j", job_id=job or "none", task_id=0)
    return paths.stderr


def remove_unused(home: Path) -> None:
    """Folders of commands whose jobs have all ended."""
    used = {
        Path(note.folder).name
        for path in (*home.glob(f"*/{SLURM_FILE}"), *home.glob(f"*/*/{SLURM_FILE}"))
        if (note := SlurmNote.read(path.parent)) is not None
        and not path.with_name(RECORD_FILE).exists()
    }
    for folder in (home / ".slurm").glob("*"):
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        (home / ".slurm").rmdir()
