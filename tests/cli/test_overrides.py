"""What becomes of the command line before Hydra sees it, and of an exception after."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sweeper.argument_types import wrong_type
from sweeper.errors import UserError
from sweeper.overrides import prepare
from sweeper.sweep_place import check_name
from sweeper.typed_command import TypedCommand

REFUSED = {
    "model=null": "model: null",
    "gpus=null": "gpus: null",
    "tracker=null": "tracker=none",
    "hydra/launcher=null": "local, debug or slurm",
    "model=": "model: an empty word",
    "gpus@foo=2": "gpus@foo",
    "gpus=glob(*)": "gpus=1,4,8",
    "hydra.mode=RUN": "leave hydra.mode out",
    "sweep.name=x,y": "sweep.name",
    "sweep.dir=x,y": "sweep.dir",
    "repeat=1,2": "repeat=5",
    "rerun=all,none": "rerun",
    "tracker=none,wandb": "tracker",
    "tracker.mode=online,offline": "tracker.mode",
    "train.minutes=1,2": "train.minutes",
    "hydra.launcher.timeout_min=1,2": "train.minutes",
    "~gpus": "~gpus",
    "~seed": "~seed",
    "~train.steps": "~train.steps",
    "gpus": "write it as key=value",
    "4": "write it as key=value",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_cannot_be_meant_is_refused(override: str) -> None:
    with pytest.raises(UserError) as caught:
        prepare(["-m", override])
    assert REFUSED[override] in str(caught.value)


def test_a_key_given_twice_is_not_to_be_swept_where_it_cannot_be() -> None:
    with pytest.raises(UserError) as caught:
        prepare(["sweep.name=a", "sweep.name=b"])
    assert caught.value.remedy == "keep one of them"


def test_what_is_meant_is_left_alone() -> None:
    given = ["sweep.name=null", "~optim.foreach", "+hydra.launcher.env.A=1", "optim.lr=0.1,1"]
    assert prepare(given) == given
    assert prepare(["experiment=null", "seed=1"]) == ["seed=1"]
    assert prepare(["ckpt=glob(*)"]) == ["ckpt=glob(*)"]


def test_overrides_may_stand_on_both_sides_of_an_option() -> None:
    given = ["precision=fp32", "-m", "gpus=1,2", "--config-dir", "conf", "ckpt=on"]
    expected = ["-m", "--config-dir", "conf", "precision=fp32", "gpus='1','2'", "ckpt='on'"]
    assert prepare(given) == expected


@pytest.mark.parametrize("name", ["", ".", "..", "...", "-x", "a/b", " a", "a ", "a\n"])
def test_names_that_are_no_directory(name: str) -> None:
    with pytest.raises(UserError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "1", "_x", "2026-12-01_10-00-00-ab12", "my sweep.v2", "ä"])
def test_names_that_are(name: str) -> None:
    check_name(name)


def test_the_command_that_continues_is_what_was_typed() -> None:
    typed = TypedCommand(("-m", "a=x y", "++sweep.name=old"), ("bin/python", "../train.py"))
    assert typed.continuing("new") == "bin/python ../train.py -m 'a=x y' sweep.name=new"


def test_a_runs_own_command_is_the_same_on_every_machine_and_finds_its_config() -> None:
    typed = TypedCommand(("--config-dir", "conf", "-m", "seed=1,2"), ("/opt/python", "/x/train.py"))
    found = typed.alone(["seed=1", "sweep.name=s", "rerun=all"])
    assert found == "python train.py --config-dir conf seed=1"


CLOSED: list[tuple[Any, Any, Any, str | None]] = [
    # value, declared type, default, what it should have been
    (4, int, 1, None),
    (4.5, int, 1, "a whole number"),
    (True, int, 1, "a whole number"),
    ("zz", int, 1, "a whole number"),
    (1, float, 1.0, None),
    (math.nan, float, 1.0, "a number"),
    (math.inf, float, 1.0, None),
    ("on", bool, False, None),
    ("maybe", bool, False, "true or false"),
    (2024, str, "", None),
    ([1], str, "", "text"),
    (None, int, 1, "a whole number"),
    (None, int, None, None),
    (None, int | None, 1, None),
    ("x", int | None, 1, "a whole number"),
    ("x", int | float, 1, "a whole number or a number"),
    ("x", int | list[int], 1, None),  # more than plain types: not judged
    ("x", Any, 1, None),
]


@pytest.mark.parametrize(("value", "hint", "default", "expected"), CLOSED)
def test_values_against_declared_types(
    value: Any, hint: Any, default: Any, expected: str | None
) -> None:
    assert wrong_type(value, hint, default) == expected
