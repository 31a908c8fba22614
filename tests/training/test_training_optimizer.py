"""How the optimizer is chosen for the device."""

import pytest
import torch
from training_cases import CPU

from sweeper.errors import UserError
from sweeper.training.optimizer import build_optimizer


def build(name, scaled=False, **arguments):
    node = {"_target_": f"torch.optim.{name}", "fused": None, "foreach": None, **arguments}
    if name == "Adadelta":
        node.pop("fused")
    return build_optimizer(node, [torch.nn.Parameter(torch.zeros(3))], CPU, scaled=scaled)


@pytest.mark.parametrize(
    ("name", "implementation"),
    [("AdamW", "fused"), ("Adam", "fused"), ("SGD", "fused"), ("Adadelta", "foreach")],
)
def test_fastest_form_is_chosen_where_none_is_asked_for(name, implementation):
    assert build(name).defaults[implementation] is True


@pytest.mark.parametrize("asked", [{"fused": False}, {"foreach": False}, {"foreach": True}])
def test_what_is_asked_for_is_kept(asked):
    optimizer = build("AdamW", **asked)
    ((name, value),) = asked.items()
    assert optimizer.defaults[name] is value
    assert not optimizer.defaults["fused"]


def test_fused_sgd_is_not_used_where_its_first_update_may_be_skipped():
    assert build("SGD", scaled=True, momentum=0.9).defaults["foreach"] is True
    with pytest.raises(UserError) as caught:
        build("SGD", scaled=True, momentum=0.9, fused=True)
    assert caught.value.key == "optim.fused"


def test_optimizers_that_need_the_loss_again_are_refused():
    with pytest.raises(UserError, match="several times"):
        build_optimizer(
            {"_target_": "torch.optim.LBFGS"}, [torch.nn.Parameter(torch.zeros(1))], CPU
        )


def test_wrong_targets_and_arguments_are_refused():
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    with pytest.raises(UserError, match="no torch optimizer"):
        build_optimizer({"_target_": "builtins.list"}, parameters, CPU)
    with pytest.raises(UserError, match="momentm"):
        build_optimizer({"_target_": "torch.optim.SGD", "momentm": 0.9}, parameters, CPU)
