"""Testing claims against records made for it."""

from __future__ import annotations

from pathlib import Path

from analysis_records import plain

from analysis.claims import read_claims
from analysis.load import from_records
from analysis.outcome import Outcome
from analysis.study import Study
from analysis.testing import test as run_claims
from sweeper.record import Record


def study(*records: Record) -> Study:
    return Study(from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)]))


def outcomes_of(tmp_path: Path, text: str, *records: Record) -> list[Outcome]:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    return run_claims(study(*records), read_claims(path))


def documents(*records: Record) -> dict[str, Outcome]:
    return {o.claim.id: o for o in run_claims(study(*records), read_claims())}


def change(metric: str, end: str, baseline: str = "precision: fp32", more: str = "") -> str:
    variant = {"precision: fp32": "precision: amp", "gpus: 1": "gpus: {at_least: 2}"}[baseline]
    return (
        f"- {{id: a, metric: {metric}, baseline: {{{baseline}}}, variant: {{{variant}}}, "
        f"{end}{more}}}"
    )
