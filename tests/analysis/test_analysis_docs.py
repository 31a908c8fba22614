"""What the documents show is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from analysis_records import plain, record

from analysis import published
from analysis.claims import read_claims
from analysis.evidence import CHANGES, RUN_FIGURES
from analysis.load import from_records
from analysis.render import FORMATS
from analysis.study import Study
from analysis.tables import TABLES

DOCS = Path(__file__).parents[2] / "docs"


def block(name: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_table_of_the_guide_works() -> None:
    code: dict[str, Any] = {}
    exec(block("add-a-table.md", "python"), code)
    runs = [record("fp32", step_s=0.5, batch=10), record("amp", step_s=0.25, batch=10)]
    for one in runs:
        one.utilization.power_w = 200.0
    table = code["build"](Study(from_records([(str(i), plain(r)) for i, r in enumerate(runs)])))
    assert table.frame["energy_j"].tolist() == [pytest.approx(10.0), pytest.approx(5.0)]
    assert all(render(table) for _, render in FORMATS.values())


def test_the_claim_of_the_guide_is_one_and_every_metric_is_named(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(block("claims.md", "yaml"))
    (claim,) = read_claims(path)
    assert claim.range_text == "at least 30 %"
    text = (DOCS / "claims.md").read_text()
    assert [name for name in (*CHANGES, *RUN_FIGURES) if f"`{name}`" not in text] == []


def test_every_import_column_and_unit_is_described() -> None:
    text = (DOCS / "import-format.md").read_text()
    assert [name for name in published.COLUMNS if f"| `{name}` |" not in text] == []
    assert [name for name in published.UNITS if f"`{name}`" not in text] == []


def test_tables_are_registered_under_the_names_of_their_files() -> None:
    runs = [record(p, c, gpus=g) for p in ("fp32", "amp") for c in ("off", "on") for g in (1, 2)]
    study = Study(from_records([(str(i), plain(r)) for i, r in enumerate(runs)]))
    for name, build in TABLES.items():
        table = build(study)
        assert table is None or table.name == name
