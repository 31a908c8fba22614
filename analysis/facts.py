"""The lines above and below a table: what one must know to read it, and what is odd about a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import label
from analysis.baseline import Match
from analysis.study import Study

# Notes of one table; more distinct ones than this are counted, not listed.
MOST_NOTES = 40

_KINDS = {
    "allocated": "bytes that the CUDA allocator handed out to tensors",
    "live tensors": "bytes of live tensors",
    "reserved": "bytes that the CUDA allocator held from the device",
    "nvidia-smi": "bytes in use on the device, by nvidia-smi",
    "unknown": "the source does not say what was counted",
}


def _distinct(column: pd.Series[Any]) -> list[Any]:
    return [v for v in column.unique() if not pd.isna(v)]


def baseline(found: Match) -> str:
    """Against what, and which way the signs go."""
    if not found.values:
        return "Baseline: none."
    line = f"Baseline: {label(dict(found.values))}, all else equal"
    if found.throughout:
        line += f" ({label(dict(found.throughout))} throughout)"
    if not (found.base >= 0).any():
        reasons = sorted({reason for reason in found.reason if reason})
        return f"{line}: n/a, {reasons[0] if reasons else 'no run'}."
    return f"{line}. Changes are in percent of it: -10 is a tenth less; speed is samples per s."


def outcome(study: Study) -> str:
    """How many runs ended how."""
    counts = study.frame["status"].value_counts()
    order = ["completed", *sorted(s for s in counts.index if s != "completed")]
    parts = [f"{counts[s]:,} {s}" for s in order if s in counts.index]
    return f"Runs: {', '.join(parts)}."


def machine(study: Study) -> str:
    """Where it ran; on a CPU, what `gpus` then means."""
    names = _distinct(study.frame["machine"])
    if len(names) > 1:
        some = "; ".join(names) if len(names) <= 4 else f"{len(names)} different ones"
        line = f"Machines: {some}. Runs on different ones are not compared with each other."
    else:
        line = f"Machine: {names[0]}." if names else "Machine: not recorded."
    world = study.frame["gpus"].unique()
    if (study.frame["hardware.device"] == "cpu").any() and len(world) > 1:
        line += (
            " Here gpus = processes on a CPU: scaling figures show this machine's cores, not GPUs."
        )
    return line


def memory(study: Study) -> str:
    """Which memory is meant."""
    kinds = _distinct(study.frame["peak_kind"])
    told = "; ".join(f"{kind} = {_KINDS.get(kind, kind)}" for kind in kinds)
    if not kinds:
        return "Memory: not measured."
    return f"Memory: peak of the steady state, largest over ranks; {told}."


def repeats(study: Study) -> str:
    """What the spread is a spread of."""
    most = int(study.configurations["completed"].max()) if len(study.configurations) else 0
    if most < 2:
        return (
            "Step time: median over the steps of a run, with their quartiles. One run of each "
            "configuration (n=1): there is no spread over repeats."
        )
    return (
        "Step time: the median over the steps of a run; mean ± sample standard deviation over "
        f"repeats (n up to {most}), quartiles over steps where n=1."
    )


def software(study: Study) -> str:
    """Versions, where they are the same for all runs."""
    stacks = _distinct(study.frame["software"])
    if len(stacks) > 1:
        return f"Software: {len(stacks)} different stacks; not compared with each other."
    return f"Software: {stacks[0] if stacks else 'not recorded'}."


class Notes:
    """Remarks on rows, numbered; equal ones share a number."""

    def __init__(self, rows: int) -> None:
        self._numbers: dict[str, int] = {}
        self._rows: list[list[int]] = [[] for _ in range(rows)]
        self._below: list[str] = []

    def add(self, row: int, remark: str) -> None:
        number = self._numbers.setdefault(remark, len(self._numbers) + 1)
        if number not in self._rows[row]:
            self._rows[row].append(number)

    def add_where(self, mask: npt.NDArray[np.bool_], remark: str) -> None:
        for row in np.flatnonzero(mask).tolist():
            self.add(row, remark)

    def has(self, row: int) -> bool:
        return bool(self._rows[row])

    def below(self, line: str) -> None:
        """A line below the table that belongs to no row of it."""
        self._below.append(line)

    def marks(self) -> list[str]:
        """For each row, the numbers of its remarks."""
        return [",".join(map(str, numbers)) for numbers in self._rows]

    def texts(self) -> list[str]:
        """For each row, its remarks in words."""
        remarks = list(self._numbers)
        return ["; ".join(remarks[n - 1] for n in numbers) for numbers in self._rows]

    def lines(self) -> tuple[str, ...]:
        """The numbered list below the table."""
        remarks = [f"{number}: {remark}" for remark, number in self._numbers.items()]
        if len(remarks) > MOST_NOTES:
            rest = len(remarks) - MOST_NOTES
            remarks = [*remarks[:MOST_NOTES], f"and {rest:,} further notes: see the CSV file"]
        return (*remarks, *self._below[:MOST_NOTES])


def any_run(study: Study, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each configuration, whether `mask` holds for one of its runs."""
    hits = np.bincount(study.configuration[mask], minlength=len(study.configurations))
    return np.greater(hits, 0)


def flags(study: Study, notes: Notes) -> None:
    """Remarks on what makes a measured figure doubtful."""
    frame = study.frame

    def listed(column: str) -> pd.Series[bool]:
        return frame[column].notna() & frame[column].ne("[]")

    doubts = {
        "step time was not steady in the measured window": frame["time.steady"].eq(False),
        "host-bound: the device waited for the host": frame["time.host_bound"].eq(True),
        "another run shared its node": listed("hardware.shares_node_with"),
        "the device throttled its clocks": listed("utilization.throttle_reasons"),
    }
    for remark, runs in doubts.items():
        mask = np.logical_and(runs.to_numpy(dtype=np.bool_), study.completed)
        notes.add_where(any_run(study, mask), remark)


def endings(study: Study, notes: Notes, among: Collection[int] | None = None) -> None:
    """Remarks on the runs that did not complete, of the configurations `among` (None: of all)."""
    rows = study.configurations
    stopped = np.flatnonzero(rows["completed"].to_numpy() < rows["runs"].to_numpy())
    if among is not None:
        stopped = np.intersect1d(stopped, np.fromiter(among, dtype=np.int64))
    if not len(stopped):
        return
    status, reason = study.frame["status"].to_numpy(), study.frame["reason"].to_numpy()
    failed = np.flatnonzero(~study.completed)
    first_failed = pd.Series(failed).groupby(study.configuration[failed]).first()
    completed, total = rows["completed"].to_numpy(), rows["runs"].to_numpy()
    for row in stopped.tolist():
        run = first_failed[row]
        remark = f"{status[run]}: {reason[run]}"
        done, runs = int(completed[row]), int(total[row])
        notes.add(row, f"{done} of {runs} repeats completed; {remark}" if done else remark)


def differences(study: Study, found: Match, notes: Notes) -> None:
    """Remarks on rows whose run differs from its baseline in what a comparison should know."""
    rows = study.configurations
    runs, kind = rows["run"].to_numpy(), rows["peak_kind"].to_numpy(dtype=object)
    commit = study.frame["software.git_commit"].to_numpy(dtype=object)[runs]
    for row in np.flatnonzero(found.base >= 0).tolist():
        base = found.base[row]
        if _differ(commit[row], commit[base]):
            notes.add(row, f"ran at commit {commit[row][:7]}, its baseline at {commit[base][:7]}")
        if _differ(kind[row], kind[base]):
            notes.add(row, f"memory not compared: {kind[row]}, and {kind[base]} of its baseline")


def _differ(own: object, base: object) -> bool:
    return isinstance(own, str) and isinstance(base, str) and own != base


def reasons(found: Match, notes: Notes, rows: Iterable[int]) -> None:
    """Remarks on why there is no comparison, where the facts do not say it already."""
    if found.everywhere:
        return
    for row in rows:
        if found.reason[row]:
            notes.add(row, f"n/a: {found.reason[row]}")
