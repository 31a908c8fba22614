"""The update: clipping, float16's loss scale, learning rates, the average of the weights."""

import copy

import pytest
import torch
from training_cases import CPU, Linear, SumOutput, amp, make_config, train, with_sgd

from sweeper.training import build_step
from sweeper.training.ema import Ema
from sweeper.training.optimizer import build_optimizer, skips_itself
from sweeper.training.schedule import Constant
from sweeper.training.update import Update, gradient_norm


def tens(samples):
    return {"x": torch.full((samples, 4), 10.0)}


@pytest.mark.parametrize("compute", ["float32", "float16"])
@pytest.mark.parametrize("sizes", [[4], [2, 2], [1, 3]])
def test_clipping_acts_on_the_true_gradient(compute, sizes):
    """Case C27: four weights with gradient 10, a norm of 20, clipped to 1."""
    config = with_sgd(make_config(Linear, SumOutput), lr=1.0)
    config.train.max_grad_norm = 1.0
    if compute == "float16":
        amp(config, compute)
    step = build_step(config, CPU)
    assert step.update.loss_scale == (65536.0 if compute == "float16" else None)
    for expected in (1.0, 2.0):
        result = step([tens(n) for n in sizes], sizes)
        assert float(result.grad_norm) == pytest.approx(20.0)
        assert float(step.model.linear.weight.detach().norm()) == pytest.approx(expected)


def test_gradients_below_the_limit_are_not_clipped():
    config = with_sgd(make_config(Linear, SumOutput), lr=1.0)
    config.train.max_grad_norm = 50.0
    step = build_step(config, CPU)
    step([tens(4)], [4])
    assert float(step.model.linear.weight.detach().norm()) == pytest.approx(20.0)


def test_norm_is_not_asked_for_without_clipping():
    step = build_step(with_sgd(make_config(Linear, SumOutput)), CPU)
    assert step([tens(4)], [4]).grad_norm is None


def test_norm_of_short_gradients_is_summed_in_float32():
    gradients = [torch.full((1000,), 0.1, dtype=torch.bfloat16) for _ in range(10)]
    exact = torch.cat(gradients).double().norm()
    assert float(gradient_norm(gradients)) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_overflowing_step_is_skipped_counted_and_moves_neither_schedule_nor_average(
    optimizer, clip
):
    config = amp(make_config(Linear, SumOutput), "float16")
    config.optim = {"_target_": f"torch.optim.{optimizer}", "lr": 1.0}
    if optimizer == "SGD":
        config.optim["momentum"] = 0.9
    config.lr = {"_target_": "sweeper.training.schedule.Step", "every": 1, "decay": 0.5}
    config.train.ema_decay, config.train.max_grad_norm = 0.5, clip
    step = build_step(config, CPU)
    overflowing = {"x": torch.full((4, 4), 1e38)}

    def frozen():
        return copy.deepcopy([step.model.state_dict(), step.ema.state_dict()])

    before = frozen()
    result = step([overflowing], [4])
    assert result.skipped
    assert str(before) == str(frozen())
    assert step.update.loss_scale == 32768.0

    results = [step([tens(4)], [4]), step([overflowing], [4]), step([tens(4)], [4])]
    assert [bool(r.skipped) for r in results] == [False, True, False]
    assert [float(r.lr) for r in results] == [1.0, 0.5, 0.5]
    assert (step.steps, step.update.updates, step.update.skipped) == (4, 2, 2)
    assert torch.isfinite(step.model.linear.weight).all()


@pytest.mark.parametrize("chunk_bytes", [1, 24, 2**26])
def test_averaging_in_parts_is_averaging(chunk_bytes, monkeypatch):
    monkeypatch.setattr("sweeper.training.ema.CHUNK_BYTES", chunk_bytes)
    shapes = {"a": (5,), "b": (2, 3), "c": (), "d": (7,)}
    weights = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    ema = Ema(weights, 0.75)
    before = [average.clone() for average in ema.average]
    with torch.no_grad():
        for weight in weights.values():
            weight.add_(1.0)
    ema.update(torch.tensor(True))
    for mean, old in zip(ema.average, before, strict=True):
        assert torch.equal(mean, old)  # the step was skipped
    ema.update(torch.tensor(False))
    for mean, old in zip(ema.average, before, strict=True):
        torch.testing.assert_close(mean, old + 0.25)


@pytest.mark.parametrize("on_device", [False, True])
def test_counting_on_the_device_gives_the_same_training(on_device):
    """What CUDA does to never wait for the device, on a CPU, against what the host does."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(5)), torch.nn.Parameter(torch.randn(2, 3))]
    optimizer = build_optimizer(
        {"_target_": "torch.optim.AdamW", "lr": 0.1}, parameters, CPU, scaled=True
    )
    assert skips_itself(optimizer)
    schedule = Constant(warmup_steps=4)
    update = Update(
        optimizer,
        schedule,
        10,
        CPU,
        scaler=torch.amp.GradScaler("cpu"),
        max_grad_norm=0.5,
        count_on_device=on_device,
    )
    ema = Ema({"a": parameters[0], "b": parameters[1]}, 0.9)
    reference = torch.optim.AdamW([p.detach().clone().requires_grad_() for p in parameters], 0.1)
    average = [p.detach().clone() for p in parameters]
    made = 0
    for overflows in (False, True, False, True, True, False):
        for p, r in zip(parameters, reference.param_groups[0]["params"], strict=True):
            r.grad = torch.randn(p.shape)
            p.grad = r.grad * update.scaler.scale(torch.ones(()))
            if overflows:
                p.grad[0] = float("inf")
        result = update()
        ema.update(result.skipped)
        assert bool(result.skipped) == overflows
        assert float(result.lr) == pytest.approx(0.1 * schedule.factor(made))
        assert isinstance(result.lr, torch.Tensor) == on_device
        if not overflows:
            group = reference.param_groups[0]
            group["lr"] = 0.1 * schedule.factor(made)
            torch.nn.utils.clip_grad_norm_(group["params"], 0.5)
            reference.step()
            made += 1
            for mean, r in zip(average, group["params"], strict=True):
                mean.lerp_(r.detach(), 0.1)
        for p, r in zip(parameters, reference.param_groups[0]["params"], strict=True):
            torch.testing.assert_close(p, r, rtol=1e-5, atol=1e-6)
        for mean, seen in zip(average, ema.average, strict=True):
            torch.testing.assert_close(seen, mean, rtol=1e-5, atol=1e-6)
    assert (update.updates, update.skipped) == (3, 3)
    state = copy.deepcopy(update.state_dict())
    update.load_state_dict(state)
    assert (update.updates, update.skipped) == (3, 3)
    assert update.loss_scale == 65536.0 / 8


def test_counting_on_the_device_never_asks_for_a_value():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        parameter = torch.nn.Parameter(torch.randn(5))
        optimizer = build_optimizer(
            {"_target_": "torch.optim.AdamW", "lr": 0.1}, [parameter], CPU, scaled=True
        )
        scaler = torch.amp.GradScaler("cpu")
        update = Update(optimizer, Constant(), 10, CPU, scaler=scaler, count_on_device=True)
        for _ in range(2):
            parameter.grad = scaler.scale(torch.randn(5))
            result = update()
            Ema({"p": parameter}, 0.9).update(result.skipped)
    assert isinstance(result.skipped, torch.Tensor)


def test_every_parameter_group_follows_the_schedule():
    first, second = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [first], "lr": 1.0}, {"params": [second], "lr": 0.1}])
    update = Update(optimizer, Constant(warmup_steps=2), 4, CPU)
    for expected in (0.5, 1.0, 1.0):
        first.grad, second.grad = torch.ones(1), torch.ones(1)
        assert update().lr == pytest.approx(expected)
        assert optimizer.param_groups[1]["lr"] == pytest.approx(0.1 * expected)
    assert first.item() == pytest.approx(-2.5)
    assert second.item() == pytest.approx(-0.25)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_average_of_the_weights_follows_its_definition(dtype):
    weight = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    ema = Ema({"w": weight}, 0.75)
    with torch.no_grad():
        weight.fill_(1.0)
    ema.update()
    ema.update(False)
    ema.update(True)
    ema.update(torch.tensor(False))
    ema.update(torch.tensor(True))
    torch.testing.assert_close(ema.average[0], torch.full((3,), 1 - 0.75**3))
    assert ema.average[0].dtype == torch.float32


def test_average_is_part_of_the_step():
    config = make_config()
    config.train.ema_decay = 0.5
    step = build_step(config, CPU)
    expected = {k: v.clone() for k, v in step.ema.state_dict().items()}
    for number in range(3):
        train(step, 1, [16], first=number)
        for name, value in expected.items():
            value.lerp_(step.model.get_parameter(name).detach(), 0.5)
    for name, value in step.ema.state_dict().items():
        torch.testing.assert_close(value, expected[name])
