"""Wrong input gets one message that names the key and the remedy, and nothing is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import Train

CASES = {
    "unknown key": (["precison=amp"], ["precison", "did you mean precision?"]),
    "unknown nested key": (["train.step=3"], ["train.step", "did you mean train.steps?"]),
    "appended unknown key": (["+precison=amp"], ["precison", "did you mean precision?"]),
    "argument the target lacks": (
        ["++model.hiden_size=3"],
        ["model.hiden_size", "did you mean model.hidden_size?"],
    ),
    "unknown option": (["model=dit_s_22"], ["model", "dit_s_22", "dit_s_2", "options"]),
    "zero GPUs": (["gpus=0"], ["gpus: 0", "gpus=1,4,8"]),
    "GPUs in words": (["gpus=two"], ["gpus: two"]),
    "wrong type": (["train.steps=many"], ["train.steps", "many"]),
    "value out of range": (["evaluate.batch=0"], ["evaluate.batch", "1 or more"]),
    "impossible split": (
        ["batch.size=10", "gpus=4"],
        ["batch.size: 10", "gpus=4", "batch.size=8 or batch.size=12"],
    ),
    "one bad cell among good ones": (
        ["-m", "gpus=1,4", "batch.size=64,10"],
        ["batch.size: 10", "gpus=4 batch.size=10", "batch.size=8 or batch.size=12"],
    ),
    "no room to measure": (["train.steps=5"], ["train.steps: 5", "train.steps="]),
    "key given twice": (
        ["-m", "seed=1,2", "seed=3"],
        ["seed", "seed=1,2 and seed=3", "keep one"],
    ),
    "unquoted equals sign": (
        ["sweep.dir=ck/epoch=3.ckpt"],
        ["sweep.dir=ck/epoch=3.ckpt", "quote", "sweep.dir='ck/epoch=3.ckpt'"],
    ),
    "unknown flag": (["--detach"], ["--detach"]),
    "directory that cannot be": (
        ["-m", "seed=1,2", "hydra.sweep.dir=/dev/null/x"],
        ["/dev/null/x", "hydra.sweep.dir"],
    ),
    "sweep name that is a path": (["sweep.name=a/b"], ["sweep.name", "a/b"]),
    "sweep name above the directory": (["sweep.name=.."], ["sweep.name", "'..'"]),
    "no directory of sweeps": (["sweep.dir="], ["sweep.dir: is empty", "sweep.dir=sweeps"]),
    "no repeats": (["repeat=0"], ["repeat: 0", "repeat=1"]),
    "ranks unlike gpus": (
        ["hydra.launcher.gpus_per_node=2"],
        ["hydra.launcher.gpus_per_node", "2 ranks, but gpus=1", "set gpus=2"],
    ),
    "batches of jobs": (
        ["-m", "seed=1,2", "hydra.sweeper.max_batch_size=1"],
        ["hydra.sweeper.max_batch_size", "hydra.launcher.max_parallel=N"],
    ),
    "launcher of Hydra": (["hydra/launcher=basic"], ["hydra/launcher: basic", "local, debug or"]),
    "mapping given whole": (
        ["hydra.launcher.env={A:1}"],
        ["hydra.launcher.env", "+hydra.launcher.env.A=1"],
    ),
    "interval": (["seed=interval(1,2)"], ["seed: interval(1,2)", "seed=A,B"]),
    "plus too many": (["+experiment=flagship"], ["experiment", "leave the + out"]),
    "number for an option": (["precision=32"], ["precision", "'32'", "fp32"]),
    "text for a whole number": (["model.depth=zz"], ["model.depth: 'zz'", "a whole number"]),
    "negative learning rate": (["optim.lr=-1"], ["optim.lr: -1", "above 0"]),
    "fp16 weights": (["precision.parameters=float16"], ["precision.parameters", "bfloat16"]),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_one_message_and_nothing_started(case: str, train: Train, tmp_path: Path) -> None:
    arguments, expected = CASES[case]
    done = train(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    for words in expected:
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert not list(tmp_path.iterdir())


def conf(directory: Path, **files: str) -> str:
    """A config directory of the user's; `model__vit` is the file model/vit.yaml."""
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(directory)


CLASSIFIER = """
_target_: sweeper.models.classifier.Classifier
input_size: 8
in_channels: 1
objective:
  _target_: sweeper.models.classification.Classification
"""


def test_swept_value_for_a_key_that_one_option_lacks(train: Train, tmp_path: Path) -> None:
    directory = conf(tmp_path / "conf", model__vit=CLASSIFIER)
    done = train("--config-dir", directory, "-m", "model=dit_tiny,vit", "model.depth=2")
    assert done.returncode == 2
    assert "model.depth: there is no such key in model=vit" in done.stderr
    assert "++model.depth" in done.stderr


def test_unquoted_switch_in_a_defaults_list(train: Train, tmp_path: Path) -> None:
    directory = conf(
        tmp_path / "conf",
        experiment__mine="# @package _global_\ndefaults:\n  - override /ckpt: on\n",
    )
    done = train("--config-dir", directory, "experiment=mine")
    assert done.returncode == 2
    assert "quote" in done.stderr
    assert 'ckpt: "on"' in done.stderr


def test_missing_value(train: Train, tmp_path: Path) -> None:
    directory = conf(tmp_path / "conf", model__mine=CLASSIFIER + "num_classes: ???\n")
    done = train("--config-dir", directory, "model=mine")
    assert done.returncode == 2
    assert "model.num_classes" in done.stderr


def test_import_error_in_the_users_package_names_its_root_cause(
    train: Train, tmp_path: Path
) -> None:
    (tmp_path / "userpkg.py").write_text("import not_installed_lib\n")
    directory = conf(
        tmp_path / "conf", model__mine=CLASSIFIER.replace("sweeper.models.classifier.", "userpkg.")
    )
    done = train("--config-dir", directory, "model=mine")
    assert done.returncode == 2
    assert "not_installed_lib" in done.stderr
    assert "model._target_" in done.stderr
    assert len(done.stdout.splitlines() + done.stderr.splitlines()) == 2


def test_a_config_file_that_is_not_yaml_is_named_with_its_line(
    train: Train, tmp_path: Path
) -> None:
    directory = conf(tmp_path / "conf", model__mine=CLASSIFIER + "bad: [\n")
    done = train("--config-dir", directory, "model=mine")
    assert done.returncode == 2
    assert re.search(r"model/mine\.yaml:\d+: is not YAML", done.stderr)
    assert "Traceback" not in done.stderr
