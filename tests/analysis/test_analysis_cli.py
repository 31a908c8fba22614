"""`python -m analysis`, as one types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from analysis_records import record, write_sweep

from analysis.__main__ import main
from analysis.report import terminal_summary, write_tables

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "analysis", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    runs = [
        record(p, c, memory_mib=m, step_s=s)
        for p, c, m, s in (
            ("fp32", "off", 400, 0.2),
            ("fp32", "on", 200, 0.25),
            ("amp", "off", 250, 0.16),
        )
    ]
    return write_sweep(tmp_path / "s", runs)


def test_report_prints_the_table_and_writes_the_files(sweep: Path) -> None:
    done = run("report", str(sweep))
    assert done.returncode == 0, done.stderr
    assert "Comparison of runs" in done.stdout
    assert "-37.5" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120 or str(sweep) in done.stdout
    names = {path.name for path in (sweep / "tables").iterdir()}
    assert {"runs.md", "runs.csv"} <= names
    assert "left_out.md" not in names


def test_analysis_loads_neither_torch_nor_hydra_nor_submitit(sweep: Path) -> None:
    code = (
        "import sys; from analysis.__main__ import main; main(['report', sys.argv[1]]); "
        "print({'torch', 'hydra', 'submitit', 'omegaconf'} & set(sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(sweep)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize("arguments", [["report", "/nowhere"], ["report", "."]])
def test_a_wrong_directory_is_one_message_and_exit_code_2(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert arguments[1] in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (["--baseline", "precision"], "is not key=value"),
        (["--baseline", "precison=amp"], "did you mean precision?"),
        (["--by", "nothing.at.all"], "no run has such a key"),
        (["--show", "rums"], "no such table"),
    ],
)
def test_a_wrong_option_is_one_message_and_exit_code_2(
    sweep: Path, option: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(sweep), *option]) == 2
    assert expected in capsys.readouterr().err


def test_left_out_records_are_listed_and_the_file_goes_when_they_do(sweep: Path) -> None:
    good = (sweep / "run000" / "record.json").read_text()
    (sweep / "run000" / "record.json").write_text("{")
    write_tables(sweep)
    assert "run000" in (sweep / "tables" / "left_out.md").read_text()
    assert "left out" in terminal_summary(sweep, width=120)
    (sweep / "run000" / "record.json").write_text(good)
    write_tables(sweep)
    assert not (sweep / "tables" / "left_out.md").exists()


def test_all_formats_and_several_sweeps(sweep: Path, tmp_path: Path) -> None:
    other = write_sweep(tmp_path / "other", [record("bf16", sweep="other", memory_mib=100)])
    out = tmp_path / "out"
    formats = ["--format", "markdown", "csv", "latex", "html", "terminal"]
    assert main(["report", str(sweep), str(other), "--output", str(out), *formats]) == 0
    assert {"runs.md", "runs.csv", "runs.tex", "runs.html", "runs.txt"} <= {
        path.name for path in out.iterdir()
    }
    assert "bf16" in (out / "runs.md").read_text()
    assert not (sweep / "tables").exists()


def test_a_sweep_of_which_every_record_is_bad_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = write_sweep(tmp_path / "s", [record()])
    (sweep / "run000" / "record.json").write_text("{")
    assert main(["report", str(sweep)]) == 0
    assert "not readable as JSON" in capsys.readouterr().out
