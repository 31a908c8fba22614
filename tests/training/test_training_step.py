"""What a training step may be relied on to compute."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from training_cases import (
    CPU,
    MeanOfUnits,
    Norms,
    SumOutput,
    Tokens,
    Weighted,
    amp,
    cut,
    equal,
    global_batch,
    make_config,
    relative,
    train,
    weights_of,
    with_sgd,
)

from sweeper.config import Config
from sweeper.errors import UserError
from sweeper.record import Numerics
from sweeper.training import build_step


def test_step_equals_a_plain_training_loop():
    config = with_sgd(make_config(lr=0.1), lr=0.1)
    step = build_step(config, CPU)
    model = copy.deepcopy(step.model)
    plain = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    expected = []
    for number in range(3):
        batch = global_batch(number)
        error = model(batch["x"], batch["time"], batch["label"]) - batch["noise"]
        loss = error.square().mean()
        plain.zero_grad()
        loss.backward()
        plain.step()
        expected.append(loss.item())
    before = weights_of(step)
    assert train(step, 3, [16]) == pytest.approx(expected, rel=1e-6)
    after = weights_of(step)
    assert not torch.equal(before["head.weight"], after["head.weight"])
    for name, value in model.state_dict().items():
        torch.testing.assert_close(after[name], value, rtol=1e-5, atol=1e-7)


def test_training_reduces_the_loss_on_one_batch():
    step = build_step(make_config(lr=3e-3), CPU)
    parts, weights = [global_batch(0)], [16]
    losses = [float(step(parts, weights).loss) for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("objective", ["samples", "tokens"])
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [1, 9, 2, 4]], ids=["equal", "unequal"])
def test_accumulation_leaves_the_training_as_it_is(objective, sizes):
    config = make_config() if objective == "samples" else make_config(objective=Tokens)
    whole = train(build_step(config, CPU), 20, [16])
    parts = train(build_step(config, CPU), 20, sizes)
    counted = train(build_step(config, CPU), 20, sizes, count=True)
    assert relative(whole, parts) < 1e-5
    assert counted == parts


def test_gradient_of_tokens_is_their_mean_and_not_the_mean_of_means():
    config = with_sgd(make_config(Weighted, MeanOfUnits))
    step = build_step(config, CPU)
    means, tokens = [1.0, 2.0, 3.0, 4.0], [5, 10, 20, 3]
    batches = [
        {"mean": torch.tensor(mean), "tokens": torch.tensor(float(count))}
        for mean, count in zip(means, tokens, strict=True)
    ]
    result = step(batches, [torch.tensor(count) for count in tokens])
    assert float(result.loss) == pytest.approx(97 / 38)
    assert step.model.weight.item() == pytest.approx(-97 / 38)


def test_batch_of_padding_alone_neither_trains_nor_spoils_the_weights():
    step = build_step(with_sgd(make_config(Weighted, MeanOfUnits)), CPU)
    nothing = {"mean": torch.tensor(3.0), "tokens": torch.tensor(0.0)}
    result = step([nothing], [torch.tensor(0)])
    assert float(result.loss) == 0
    assert step.model.weight.item() == 0


def test_checkpointing_changes_no_bit():
    off, on = make_config(), make_config()
    on.ckpt.enabled = True
    first, second = build_step(off, CPU), build_step(on, CPU)
    assert train(first, 20, [8, 8]) == train(second, 20, [8, 8])
    assert equal(weights_of(first), weights_of(second))
    assert second.describe()["checkpointed_blocks"] == 3


def test_checkpointing_repeats_the_dropout_of_the_forward():
    """Case C31a."""
    off, on = make_config(dropout=0.5), make_config(dropout=0.5)
    on.ckpt.enabled = True
    first, second = build_step(off, CPU), build_step(on, CPU)
    assert train(first, 5, [8, 8]) == train(second, 5, [8, 8])
    assert equal(weights_of(first), weights_of(second))
    assert first.describe()["parity"] == "rng"


def test_dropout_differs_between_micro_batches_and_steps_and_repeats_with_the_seed():
    step = build_step(with_sgd(make_config(dropout=0.5), lr=0.0), CPU)
    part = cut(global_batch(0), [8, 8])[0]

    def losses(of):
        return [float(of([part], [8]).loss) for _ in range(2)]

    one, other = losses(step)
    assert one != other
    pair = build_step(with_sgd(make_config(dropout=0.5), lr=0.0), CPU)([part, part], [8, 8])
    assert float(pair.loss) != pytest.approx(one, rel=1e-6)
    torch.manual_seed(12345)
    assert losses(build_step(with_sgd(make_config(dropout=0.5), lr=0.0), CPU)) == [one, other]


def test_dropout_that_no_layer_shows_is_noticed():
    config = make_config(Norms, SumOutput, dropout=0.5)
    step = build_step(config, CPU)
    batches = [{"x": torch.randn(8, 4)}] * 2
    step(batches, [8, 8])
    assert step._draws
    assert step.describe()["parity"] == "batch"  # BatchNorm weighs more


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_resumed_run_continues_bit_for_bit(precision):
    config = make_config(dropout=0.1)
    config.ckpt.enabled = True
    config.train.ema_decay, config.train.max_grad_norm = 0.9, 1.0
    config.lr = {"_target_": "sweeper.training.schedule.Cosine", "warmup_steps": 3}
    if precision != "float32":
        amp(config, precision)
    through = build_step(config, CPU)
    train(through, 4, [8, 8])
    state = copy.deepcopy(through.state_dict())
    expected = train(through, 4, [8, 8], first=4)

    config.seed = 7  # other weights: all must come from the state
    resumed = build_step(config, CPU)
    config.seed = 0
    resumed._seed = 0
    resumed.load_state_dict(state)
    assert train(resumed, 4, [8, 8], first=4) == expected
    assert equal(weights_of(through), weights_of(resumed))
    assert equal(through.ema.state_dict(), resumed.ema.state_dict())
    assert resumed.steps == 8
    assert resumed.update.loss_scale == through.update.loss_scale


def test_weights_depend_on_the_seed_alone():
    config = make_config()
    torch.manual_seed(1)
    first = weights_of(build_step(config, CPU))
    torch.manual_seed(2)
    config.ckpt.enabled = True
    assert equal(first, weights_of(build_step(config, CPU)))
    config.seed = 1
    assert not equal(first, weights_of(build_step(config, CPU)))


def test_phases_are_told_at_their_boundaries():
    heard = []

    class Listener:
        def phase(self, name):
            heard.append(name)

    config = make_config()
    config.train.ema_decay = 0.9
    step = build_step(config, CPU, observer=Listener())
    assert heard == []
    train(step, 1, [8, 8])
    assert heard == ["forward", "backward"] * 2 + ["optimizer", "ema", "rest"]


@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_step_can_be_traced_without_a_device(variant):
    """Fake tensors have no values: any wait for one raises."""
    config = make_config(objective=Tokens)
    if variant == "everything":
        amp(config, "bfloat16")
        config.ckpt.enabled = True
        config.train.max_grad_norm, config.train.ema_decay = 1.0, 0.99
    with FakeTensorMode():
        step = build_step(config, CPU)
        for number in range(2):
            parts = cut(global_batch(number), [8, 8])
            result = step(parts, [step.objective.weight(part) for part in parts])
    assert result.loss.shape == ()


def test_evaluation_uses_each_unit_once_and_leaves_the_training_alone():
    config = make_config(dropout=0.5)
    step, undisturbed = build_step(config, CPU), build_step(config, CPU)
    train(step, 1, [16]), train(undisturbed, 1, [16])
    before, draws = weights_of(step), torch.get_rng_state()
    batch = global_batch(99, 10)
    parts = cut(batch, [4, 4, 2])
    total, weight = step.evaluate((part, step.objective.weight(part)) for part in parts)
    with torch.no_grad():
        step.model.eval()
        whole = step.objective.loss(step.model, batch).total
        step.model.train()
    assert float(weight) == 10
    assert float(total) == pytest.approx(float(whole), rel=1e-5)
    assert total.dtype == torch.float64
    assert torch.equal(draws, torch.get_rng_state())
    assert equal(before, weights_of(step))
    assert all(module.training for module in step.model.modules())
    assert all(p.grad is None for p in step.model.parameters())
    assert train(step, 2, [16], first=1) == train(undisturbed, 2, [16], first=1)


def test_description_fits_the_record_and_tells_what_was_seen():
    config = make_config()
    config.accum.steps = 2
    step = build_step(config, CPU)
    assert step.describe()["compute_dtype"] is None  # nothing has been computed yet
    train(step, 1, [8, 8])
    seen = Numerics(**step.describe())
    assert seen.precision == "fp32"
    assert seen.parameter_dtype == seen.compute_dtype == "float32"
    assert seen.attention == "flash"
    assert seen.parity == "exact"
    assert seen.accumulation == 2
    assert seen.checkpointed_blocks == 0
    trainable = [p for p in step.model.parameters() if p.requires_grad]
    assert seen.parameters == sum(p.numel() for p in trainable)
    assert seen.autocast is seen.grad_scaler is seen.tf32 is False


def test_math_attention_is_told_from_fused_kernels():
    step = build_step(make_config(), CPU)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        train(step, 1, [16])
    assert step.describe()["attention"] == "math"


def test_persistent_tensors_are_told_by_component():
    config = make_config()
    config.train.ema_decay = 0.9
    sizes = {}

    class Meter:
        def phase(self, name):
            if name == "optimizer":
                sizes.update(measure())

    step = build_step(config, CPU, observer=Meter())

    def measure():
        parts = step.persistent_tensors()
        return {name: sum(t.numel() for t in tensors) for name, tensors in parts.items()}

    train(step, 2, [16])
    trainable = sum(p.numel() for p in step.model.parameters() if p.requires_grad)
    state = 2 * trainable + sum(p.requires_grad for p in step.model.parameters())
    assert sizes["parameters"] == trainable + step.model.position.numel()
    assert sizes["gradients"] == trainable
    assert sizes["optimizer"] == state  # two averages and a step count
    assert sizes["ema"] == trainable
    assert measure()["gradients"] == 0  # released when the step is over


def test_frozen_parameters_stay():
    step = build_step(make_config(), CPU)
    before = step.model.position.clone()
    train(step, 2, [16])
    assert torch.equal(before, step.model.position)


def test_calls_that_make_no_sense_are_refused():
    step = build_step(make_config(), CPU)
    part = global_batch(0)
    with pytest.raises(ValueError, match="micro-batch"):
        step([], [])
    with pytest.raises(ValueError, match="2 weights"):
        step([part], [8, 8])
    with pytest.raises(ValueError, match="weight 0"):
        step([part], [16], global_weight=0)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda c: c.model.pop("objective"), "model.objective"),
        (lambda c: c.model.update(_target_="builtins.dict"), "model._target_"),
        (lambda c: c.model.update(_target_="nowhere.Model"), "model._target_"),
        (lambda c: c.model.update(_target_="torch.nn.Identity"), "model"),
        (lambda c: c.model.update(widht=8), "model"),
        (lambda c: c.optim.pop("_target_"), "optim._target_"),
        (lambda c: c.lr.pop("_target_"), "lr._target_"),
    ],
)
def test_what_cannot_be_built_names_its_key(change, key):
    config = make_config()
    change(config)
    with pytest.raises(UserError) as caught:
        build_step(config, CPU)
    assert caught.value.key == key


def test_default_config_has_nothing_to_build():
    with pytest.raises(UserError):
        build_step(Config(), CPU)
