"""Learning-rate policies against their formulas."""

import math

import pytest

from sweeper.errors import UserError
from sweeper.training.schedule import build_schedule


def factors(name, steps, total=10, **arguments):
    node = {"_target_": f"sweeper.training.schedule.{name}", **arguments}
    schedule = build_schedule(node, total)
    return [schedule.factor(step) for step in steps]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Constant", {}, {0: 1, 5: 1, 99: 1}),
        ("Step", {"every": 2, "decay": 0.1}, {0: 1, 1: 1, 2: 0.1, 4: 0.01}),
        ("MultiStep", {"milestones": [2, 5], "decay": 0.5}, {1: 1, 2: 0.5, 4: 0.5, 5: 0.25}),
        ("Exponential", {"decay": 0.9}, {0: 1, 3: 0.729}),
        ("Inverse", {"gamma": 1.0, "power": 2.0}, {0: 1, 1: 1 / 4, 3: 1 / 16}),
        ("Polynomial", {}, {0: 1, 5: 0.5, 10: 0, 99: 0}),
        ("Polynomial", {"power": 2.0, "min_factor": 0.5}, {0: 1, 5: 0.625, 10: 0.5}),
        ("Cosine", {}, {0: 1, 5: 0.5, 10: 0, 99: 0}),
        ("Cosine", {"min_factor": 0.1}, {0: 1, 5: 0.55, 10: 0.1}),
        ("Sigmoid", {"steepness": 4.0}, {0: 1 / (1 + math.exp(-2)), 5: 0.5}),
    ],
)
def test_policy_follows_its_formula(name, arguments, expected):
    assert factors(name, expected, **arguments) == pytest.approx(list(expected.values()))


@pytest.mark.parametrize("name", ["Constant", "Cosine", "Exponential"])
def test_warm_up_is_linear_and_then_the_policy_begins(name):
    plain = factors(name, range(6), total=6)
    warmed = factors(name, range(10), total=10, warmup_steps=4)
    assert warmed[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert warmed[4:] == pytest.approx(plain)


def test_policies_that_last_the_run_end_with_it():
    assert factors("Cosine", [20], total=20) == pytest.approx([0])
    assert factors("Cosine", [20], total=40) == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("name", "arguments", "key"),
    [
        ("Cosine", {"warmup_steps": 10}, "lr.warmup_steps"),
        ("Cosine", {"min_factor": 1.5}, "lr.min_factor"),
        ("Constant", {"warmup_steps": -1}, "lr.warmup_steps"),
        ("Step", {"every": 0}, "lr.every"),
        ("Cosine", {"min_fctor": 0.1}, "lr"),
    ],
)
def test_wrong_arguments_name_their_key(name, arguments, key):
    with pytest.raises(UserError) as caught:
        factors(name, [0], **arguments)
    assert caught.value.key == key


def test_an_object_without_factor_is_no_policy():
    with pytest.raises(UserError, match="factor"):
        build_schedule({"_target_": "fractions.Fraction"}, 10)
