"""Sweeps as a user runs them: identity, names, user packages, failures, continuing."""

from __future__ import annotations

import csv
import math
import re
import shutil
from pathlib import Path

import pytest
from commands import ROOT, SMALL, Train, records

from sweeper.record import Status

USER_PACKAGE = ROOT / "tests" / "models" / "user_package"


def run_dirs(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.rglob("run.json"))


def test_equal_configurations_collapse(train: Train, tmp_path: Path) -> None:
    done = train("-m", "optim.lr=1e-5,1e-9,0.00001", "seed=1,1", *SMALL)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert [record.config["optim"]["lr"] for record in found] == [1e-5, 1e-9]
    assert all(isinstance(record.config["optim"]["lr"], float) for record in found)


def test_ranks_of_a_run_start_once_and_leave_one_record(train: Train, tmp_path: Path) -> None:
    done = train("-m", "gpus=2", "seed=1,2", *SMALL)
    assert done.returncode == 0, done.stderr
    assert len(run_dirs(tmp_path)) == 2
    assert len(records(tmp_path)) == 2
    assert len(list(tmp_path.rglob("rank*.err"))) == 4


def test_names_are_short_flat_and_keep_their_text(train: Train, tmp_path: Path) -> None:
    long = [letter * 200 for letter in "ab"]
    done = train(
        "-m",
        f"ckpt.blocks={','.join(long)}",  # without checkpointing only a name
        "tracker.entity='实验/一'",
        "hydra.sweep.dir='my sweeps/实验 1'",
        *[word for word in SMALL if not word.startswith("tracker")],
    )
    assert done.returncode == 0, done.stderr
    found = run_dirs(tmp_path)
    assert len(found) == 2
    for path in found:
        assert path.parent == tmp_path / "my sweeps" / "实验 1"
        assert len(path.name.encode()) <= 255
    overrides = [record.identity.overrides for record in records(tmp_path)]
    assert [words[0] for words in overrides] == [f"ckpt.blocks={value}" for value in long]
    assert all("tracker.entity='实验/一'" in words for words in overrides)
    assert "a" * 200 in (tmp_path / "my sweeps" / "实验 1" / "tables" / "runs.md").read_text(
        "utf-8"
    )


def test_a_quoted_value_arrives_as_typed(train: Train, tmp_path: Path) -> None:
    done = train("sweep.dir='ck/epoch=3-step=10.ckpt'", *SMALL)
    assert done.returncode == 0, done.stderr
    (path,) = run_dirs(tmp_path)
    assert path.parent.parent == tmp_path / "ck" / "epoch=3-step=10.ckpt"


def test_a_users_own_model_in_their_own_package(train: Train, tmp_path: Path) -> None:
    package = tmp_path / "theirs"
    shutil.copytree(USER_PACKAGE, package)
    done = train("--config-dir", "conf", "-m", "model=mine", "gpus=1,2", *SMALL, cwd=package)
    assert done.returncode == 0, done.stdout + done.stderr
    found = records(package)
    assert [record.status for record in found] == [Status.COMPLETED] * 2
    assert found[0].config["model"]["_target_"].startswith("mypackage.")


def test_a_fixed_value_may_be_added_to_every_option(train: Train, tmp_path: Path) -> None:
    directory = tmp_path / "conf" / "model"
    directory.mkdir(parents=True)
    shipped = (ROOT / "conf" / "model" / "classifier_small.yaml").read_text()
    lines = [line for line in shipped.splitlines() if not line.startswith("depth")]
    (directory / "vit.yaml").write_text("\n".join(lines))
    done = train(
        "--config-dir", "conf", "-m", "model=vit,classifier_small", "++model.depth=2", *SMALL
    )
    assert done.returncode == 0, done.stderr
    # With the depth added both options are the same configuration.
    assert [record.config["model"]["depth"] for record in records(tmp_path)] == [2]


BROKEN = """
from sweeper.models.classifier import Classifier


class Broken(Classifier):
    def forward(self, image):
        raise ValueError("this model cannot work")
"""


def test_one_bad_run_never_touches_the_others(train: Train, tmp_path: Path) -> None:
    directory = tmp_path / "conf" / "model"
    directory.mkdir(parents=True)
    shipped = (ROOT / "conf" / "model" / "classifier_small.yaml").read_text()
    (directory / "broken.yaml").write_text(
        shipped.replace("sweeper.models.classifier.Classifier", "brokenpkg.Broken")
    )
    (tmp_path / "brokenpkg.py").write_text(BROKEN)
    models = "model=classifier_small,broken,dit_tiny"
    done = train("--config-dir", "conf", "-m", models, *SMALL)
    assert done.returncode == 1, done.stdout + done.stderr
    by_model = {record.identity.choices["model"]: record for record in records(tmp_path)}
    assert by_model["classifier_small"].status is Status.COMPLETED
    assert by_model["dit_tiny"].status is Status.COMPLETED
    broken = by_model["broken"]
    assert broken.status is Status.FAILED
    assert broken.error is not None
    assert broken.error.type == "ValueError"
    assert broken.error.message == "this model cannot work"
    assert "this model cannot work" in (broken.error.traceback or "")
    assert "this model cannot work" in done.stdout
    (log,) = tmp_path.rglob("*broken*/attempt0/rank0.err")
    assert "this model cannot work" in log.read_text()
    assert "Traceback" not in done.stderr


def test_a_loss_that_is_not_finite_is_diverged(train: Train, tmp_path: Path) -> None:
    done = train("optim.lr=1e30", *SMALL)
    assert done.returncode == 1
    (record,) = records(tmp_path)
    assert record.status is Status.DIVERGED
    assert record.loss.train_last is None
    (steps,) = tmp_path.rglob("steps.csv")  # where it went wrong
    rows = list(csv.DictReader(steps.open()))
    assert math.isfinite(float(rows[0]["loss"]))
    assert not math.isfinite(float(rows[-1]["loss"]))


def test_the_same_command_continues_a_sweep(train: Train, tmp_path: Path) -> None:
    first = train("-m", "seed=1,2", "sweep.name=mine", *SMALL)
    assert first.returncode == 0, first.stderr
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    second = train("-m", "seed=1,2,3", "sweep.name=mine", *SMALL)
    assert second.returncode == 0, second.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert sorted(record.config["seed"] for record in records(tmp_path)) == [1, 2, 3]
    again = train("-m", "seed=1,2,3", "sweep.name=mine", "rerun=all", *SMALL)
    assert again.returncode == 0, again.stderr
    assert all(path.stat().st_mtime_ns != time for path, time in kept.items())
    assert len(records(tmp_path)) == 3


def test_continuing_under_other_conditions_is_refused(train: Train, tmp_path: Path) -> None:
    assert train("sweep.name=mine", *SMALL).returncode == 0
    path = tmp_path / "sweeps" / "mine" / "sweep.json"
    path.write_text(re.sub(r'"torch": "[^"]*"', '"torch": "1.0.0"', path.read_text()))
    refused = train("-m", "seed=0,1", "sweep.name=mine", *SMALL)
    assert refused.returncode == 2
    assert "torch 1.0.0 ->" in refused.stderr
    assert "sweep.allow_change=true" in refused.stderr
    assert len(records(tmp_path)) == 1
    allowed = train("-m", "seed=0,1", "sweep.name=mine", "sweep.allow_change=true", *SMALL)
    assert allowed.returncode == 0, allowed.stderr
    assert len(records(tmp_path)) == 2


def test_a_shipped_experiment_with_one_axis_changed(train: Train, tmp_path: Path) -> None:
    done = train("experiment=flagship", "gpus=1", *SMALL)
    assert done.returncode == 0, done.stderr
    choices = [record.identity.choices for record in records(tmp_path)]
    assert {(c["precision"], c["ckpt"]) for c in choices} == {
        (precision, ckpt) for precision in ("fp32", "amp") for ckpt in ("on", "off")
    }


def test_repeats_are_runs_of_one_configuration(train: Train, tmp_path: Path) -> None:
    done = train("-m", "ckpt=on,off", "repeat=2", *SMALL)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert sorted(record.identity.repeat for record in found) == [0, 0, 1, 1]
    by_config: dict[str, list[int | None]] = {}
    for record in found:
        peaks = by_config.setdefault(record.identity.config_id, [])
        peaks.append(record.memory.warm.peak_tensor_bytes)
    assert len(by_config) == 2
    for peaks in by_config.values():
        assert peaks[0] == peaks[1]  # counted bytes, not sampled ones


def test_single_configuration_in_this_process(train: Train, tmp_path: Path) -> None:
    done = train("hydra/launcher=debug", "model=classifier_small", "precision=bf16", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records(tmp_path)
    assert record.numerics.parameter_dtype == "bfloat16"


@pytest.mark.parametrize("flags", [["--help"], ["--cfg", "job"], ["--info", "searchpath"]])
def test_hydras_own_flags(train: Train, flags: list[str]) -> None:
    done = train(*flags)
    assert done.returncode == 0, done.stderr
    assert "gpus" in done.stdout or "count://" in done.stdout


def test_any_whole_number_of_ranks(train: Train, tmp_path: Path) -> None:
    done = train("-m", "gpus=range(1,4)", "batch.size=12", *SMALL[:3], "tracker=none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record.hardware.world_size for record in records(tmp_path)] == [1, 2, 3]


def test_shell_completion_lists_counts(train: Train) -> None:
    done = train("-sc", "query=bash", COMP_LINE="train.py gpus=", COMP_POINT="14")
    assert "gpus=1 gpus=2 gpus=4 gpus=8" in done.stdout
