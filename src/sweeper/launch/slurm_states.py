"""What the scheduler says of jobs: squeue first, and sacct of those that squeue has forgotten.

Neither is asked for one job at a time, and no answer counts as no news.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass

from sweeper.launch.slurm_cluster import ask

# Seconds between two questions; a cluster's controller serves many people.
ASK_EVERY_S = 3.0
# A job that squeue does not list any more is looked for once again after this.
GONE_AFTER_S = 5.0

OVER = frozenset(
    [
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "CANCELLED",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
        "REVOKED",
        "GONE",
    ]
)

# Reasons of pending jobs that no waiting cures.
NEVER = frozenset(
    [
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "PartitionConfig",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "AssocMaxNodePerJobLimit",
        "AssocMaxCpuPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMaxGRESPerJob",
        "QOSMaxCpuPerJobLimit",
        "DependencyNeverSatisfied",
        "JobHoldMaxRequeue",
    ]
)


@dataclass(frozen=True)
class JobState:
    """One job, or one element of an array."""

    state: str  # as Slurm calls it: PENDING, RUNNING, ...; GONE = no trace of it
    reason: str = ""  # why it waits, or ended
    nodes: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def never(self) -> bool:
        """Whether it waits for what can never come."""
        waits = self.state == "PENDING"
        return waits and (self.reason in NEVER or self.reason.startswith("launch_failed"))


def parse_squeue(text: str) -> dict[str, JobState]:
    """Read `squeue --noheader --array --format '%i|%T|%r|%N'`."""
    found = {}
    for line in text.splitlines():
        if line.count("|") == 3:
            job, state, reason, nodes = line.split("|")
            found[job] = JobState(state, reason.replace(" ", "_"), nodes)
    return found


def parse_sacct(text: str) -> dict[str, JobState]:
    """Read `sacct --noheader --parsable2 --format JobID,State,NodeList`; the last line of a job,
    which may have been requeued, counts."""
    found = {}
    for line in text.splitlines():
        if line.count("|") == 2:
            job, state, nodes = line.split("|")
            word, _, more = state.partition(" ")  # "CANCELLED by 1000"
            found[job] = JobState(word.rstrip("+"), more, nodes)
    return found


def squeue() -> dict[str, JobState] | None:
    """This user's jobs, the recently ended ones among them; None if it does not answer."""
    command = ("squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}")
    try:
        return parse_squeue(ask(*command, "--format=%i|%T|%r|%N"))
    except (OSError, subprocess.SubprocessError):
        return None


def sacct(jobs: Collection[str]) -> dict[str, JobState]:
    """Of the accounting database; nothing where there is none."""
    if not jobs:
        return {}
    arrays = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    command = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={arrays}")
    try:
        return parse_sacct(ask(*command, "--format=JobID,State,NodeList"))
    except (OSError, subprocess.SubprocessError):
        return {}


def find_job(name: str, index: int) -> str | None:
    """The job of that name, or the element of the array, where its number was never noted."""
    command = ("squeue", "--noheader", "--array", "--states=all", f"--name={name}")
    try:
        jobs = ask(*command, "--format=%i").split()
    except (OSError, subprocess.SubprocessError):
        return None
    return next((job for job in jobs if int(job.partition("_")[2] or 0) == index), None)


class SlurmStates:
    """The latest news of jobs."""

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._listed: dict[str, JobState] = {}
        self._missing_since: dict[str, float] = {}

    def refresh(self, jobs: Collection[str]) -> bool:
        """Ask again, unless that was just done; returns whether there is news."""
        at = time.monotonic()
        if self._asked_at is not None and at - self._asked_at < ASK_EVERY_S:
            return False
        self._asked_at = at
        listed = squeue()
        if listed is None:
            return False
        gone = {job for job in jobs if job not in listed}
        for job in gone:
            self._missing_since.setdefault(job, at)
        for job in set(self._missing_since) - gone:
            del self._missing_since[job]
        self._listed = listed
        return True

    def __getitem__(self, job: str) -> JobState | None:
        """None while nothing is known for sure."""
        if job in self._listed:
            return self._listed[job]
        since = self._missing_since.get(job)
        if since is None or time.monotonic() - since < GONE_AFTER_S:
            return None
        return settled(job)


def settled(job: str) -> JobState:
    """How a job ended that squeue no longer knows. The database may still hold it for pending."""
    said = sacct([job]).get(job)
    return said if said is not None and said.is_over else JobState("GONE")


def look_up(job: str) -> JobState | None:
    """The state of one job now; None if Slurm does not answer."""
    listed = squeue()
    if listed is None:
        return None
    return listed.get(job) or settled(job)


def cancel(jobs: Collection[str], *, at_once: bool = False) -> None:
    """Take jobs out of the queue, or end them; `at_once` leaves them no time to close down."""
    for options in [[], ["--signal=KILL", "--full"]] if at_once else [[]]:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            ask("scancel", *options, *jobs)
