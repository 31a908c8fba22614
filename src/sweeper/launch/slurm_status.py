"""What Slurm says of a sweep's runs, for whoever looks at its directory."""

from __future__ import annotations

from collections.abc import Iterable

from sweeper.launch.progress import Progress
from sweeper.launch.slurm_note import SlurmNote
from sweeper.launch.slurm_states import JobState, find_job, sacct, squeue


def add_states(runs: Iterable[Progress]) -> None:
    """Say of runs that are jobs of Slurm which job, and why it waits or that it is gone.

    Nothing is changed where Slurm does not answer: it need not be here.
    """
    jobs = []
    for run in runs:
        note = SlurmNote.read(run.run_dir) if run.run_dir is not None else None
        if note is not None:
            jobs.append((run, note))
    if not jobs or (listed := squeue()) is None:
        return
    named = [(run, note.job or find_job(note.name, note.index)) for run, note in jobs]
    ended = sacct([job for _, job in named if job is not None and job not in listed])
    for run, job in named:
        state = listed.get(job or "") or ended.get(job or "") or JobState("GONE")
        if state.is_over:
            run.status = f"lost ({state.state})"
        elif run.status != "running" or state.state != "RUNNING":
            why = f", {state.reason}" if state.reason not in ("", "None") else ""
            run.status = f"queued ({job}{why})" if state.state == "PENDING" else run.status
