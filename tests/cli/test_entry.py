"""train.py around the sweep: the report, and Ctrl-C while it is made."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from commands import ROOT

from sweeper import cli
from sweeper.record import Identity, Record, Status, write_record


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """train.py, whose sweep has ended with exit code 0 and left one run in `tmp_path`."""
    spec = importlib.util.spec_from_file_location("entry", ROOT / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    identity = Identity(sweep="s", run_id="1", config_id="1", variant="default")
    (tmp_path / "run").mkdir()
    write_record(tmp_path / "run", Record(identity=identity, status=Status.COMPLETED))
    monkeypatch.setattr(cli, "run", lambda argv, config_dir: cli.Outcome(0, tmp_path))
    return module


def test_tables_that_cannot_be_written_are_one_message_and_the_rest_is_there(
    entry: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables").write_text("a file")
    assert entry.main() == 0
    shown = capsys.readouterr()
    assert f"{tmp_path / 'tables'}: cannot be written: File exists" in shown.err
    assert f"python -m analysis report {tmp_path}" in shown.err
    assert f"report: {tmp_path / 'report.html'}" in shown.out


def test_a_report_that_cannot_be_written_is_one_message(
    entry: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").mkdir()
    assert entry.main() == 0
    assert "cannot be written: Is a directory" in capsys.readouterr().err
    assert (tmp_path / "tables").is_dir()


def test_ctrl_c_while_the_report_is_made(
    entry: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(sweep_dir: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "report", interrupted)
    assert entry.main() == 130
    expected = f"no report; make it with: python -m analysis report {tmp_path}\n"
    assert capsys.readouterr().err == expected


def test_ctrl_c_before_the_sweep_says_nothing(
    entry: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(argv: list[str], config_dir: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert entry.main() == 130
    assert capsys.readouterr() == ("", "")
