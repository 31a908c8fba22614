"""What a precision option means on a device, and what is refused."""

import warnings
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from training_cases import (
    CPU,
    Norms,
    SumOutput,
    amp,
    global_batch,
    make_config,
    relative,
    train,
)

from sweeper.config import PrecisionConfig
from sweeper.errors import UserError
from sweeper.training import build_step
from sweeper.training.precision import Support, native_support, resolve_precision

CUDA = torch.device("cuda")
AMPERE = Support(bfloat16=True, float16=True, tf32=True)
VOLTA = Support(bfloat16=False, float16=True, tf32=False)
OPTIONS = Path(__file__).parents[2] / "conf" / "precision"


def option(name):
    """conf/precision/<name>.yaml, checked against the schema."""
    schema = OmegaConf.structured(PrecisionConfig)
    return OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.load(OPTIONS / f"{name}.yaml")))


def test_every_option_carries_its_own_name():
    names = {path.stem for path in OPTIONS.glob("*.yaml")}
    assert names == {"fp32", "tf32", "amp", "amp_bf16", "amp_fp16", "bf16"}
    assert all(option(name).name == name for name in names)


@pytest.mark.parametrize(
    ("name", "device", "support", "compute", "parameters", "autocast", "scaler", "tf32"),
    [
        ("fp32", CUDA, AMPERE, "float32", "float32", False, False, False),
        ("tf32", CUDA, AMPERE, "float32", "float32", False, False, True),
        ("amp", CUDA, AMPERE, "bfloat16", "float32", True, False, False),
        ("amp", CUDA, VOLTA, "float16", "float32", True, True, False),
        ("amp", CPU, None, "bfloat16", "float32", True, False, False),
        ("amp_bf16", CUDA, AMPERE, "bfloat16", "float32", True, False, False),
        ("amp_fp16", CUDA, VOLTA, "float16", "float32", True, True, False),
        ("amp_fp16", CPU, None, "float16", "float32", True, True, False),
        ("bf16", CUDA, AMPERE, "bfloat16", "bfloat16", False, False, False),
        ("bf16", CPU, None, "bfloat16", "bfloat16", False, False, False),
    ],
)
def test_options_mean_what_they_say(
    name, device, support, compute, parameters, autocast, scaler, tf32
):
    precision = resolve_precision(option(name), device, support)
    assert precision.name == name
    assert precision.compute == getattr(torch, compute)
    assert precision.parameters == getattr(torch, parameters)
    assert (precision.autocast, precision.scaler, precision.tf32) == (autocast, scaler, tf32)


@pytest.mark.parametrize(
    ("name", "device", "support", "remedy"),
    [
        ("tf32", CPU, None, "precision=fp32"),
        ("tf32", CUDA, VOLTA, "precision=fp32"),
        ("amp_bf16", CUDA, VOLTA, "precision=amp"),
        ("bf16", CUDA, VOLTA, "precision=amp"),
        ("amp_fp16", CPU, Support(True, False, False), "precision=amp"),
        ("amp", CPU, Support(False, False, False), "precision=fp32"),
    ],
)
def test_what_the_device_cannot_do_is_refused_and_never_replaced(name, device, support, remedy):
    with pytest.raises(UserError) as caught:
        resolve_precision(option(name), device, support)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"autocast": True}, "precision.autocast"),
        ({"compute": "bfloat16"}, "precision.compute"),
        ({"compute": "best"}, "precision.compute"),
        (
            {"compute": "float16", "parameters": "bfloat16", "autocast": True},
            "precision.parameters",
        ),
    ],
)
def test_settings_that_would_silently_do_nothing_are_refused(settings, key):
    with pytest.raises(UserError) as caught:
        resolve_precision(PrecisionConfig(**settings), CPU)
    assert caught.value.key == key


def test_a_gpu_is_asked_for_what_it_does_natively(monkeypatch):
    """torch says that an old GPU supports bfloat16, which it emulates."""
    for capability, says, expected in (
        ((8, 0), True, AMPERE),
        ((7, 0), True, VOLTA),
        ((9, 0), False, Support(bfloat16=False, float16=True, tf32=True)),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda s=says: s)
        assert native_support(CUDA) == expected


def test_amp_on_a_cpu_computes_in_bfloat16_without_scaler_or_warning():
    """Case C34."""
    config = make_config()
    config.precision = option("amp")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = build_step(config, CPU)
        train(step, 2, [8, 8])
    seen = step.describe()
    assert seen["precision"] == "amp"
    assert seen["compute_dtype"] == "bfloat16"
    assert seen["parameter_dtype"] == "float32"
    assert seen["autocast"]
    assert not seen["grad_scaler"]


def test_amp_without_bfloat16_computes_in_float16_with_scaler():
    config = make_config()
    config.precision = option("amp")
    step = build_step(config, CPU, support=Support(bfloat16=False, float16=True, tf32=False))
    train(step, 2, [8, 8])
    seen = step.describe()
    assert seen["compute_dtype"] == "float16"
    assert seen["grad_scaler"]
    assert step.update.skipped == 0


def test_label_that_autocast_does_not_fulfil_shows_in_the_record():
    """The model switches autocast off; the record tells what was computed, not what was asked."""

    class Stubborn(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *args):
            with torch.autocast("cpu", enabled=False):
                return self.inner(*args)

    step = build_step(amp(make_config(), "bfloat16"), CPU)
    step.replica = Stubborn(step.model)
    train(step, 1, [16])
    assert step.describe()["compute_dtype"] == "float32"


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["amp", "amp_fp16", "bf16"])
def test_short_dtypes_train_close_to_float32(name, checkpointing):
    full = train(build_step(make_config(lr=3e-3), CPU), 20, [16])
    config = make_config(lr=3e-3)
    config.precision, config.ckpt.enabled = option(name), checkpointing
    config.train.ema_decay = 0.9
    step = build_step(config, CPU)
    assert relative(full, train(step, 20, [16])) < 0.02
    assert step.ema.average[0].dtype == torch.float32


def test_pure_bfloat16_keeps_everything_short_but_the_timestep_and_the_loss():
    config = make_config()
    config.precision = option("bf16")
    step = build_step(config, CPU)
    entered = []
    step.model.register_forward_pre_hook(lambda module, args: entered.extend(args))
    batch = global_batch(0)
    batch["time"] = torch.full((16,), 999.0)  # bfloat16 would make it 1000
    result = step([batch], [16])
    image, time, label = entered
    assert image.dtype == torch.bfloat16
    assert time.dtype == torch.float32
    assert time[0] == 999
    assert label.dtype == torch.int64
    assert result.loss.dtype == torch.float32
    parts = step.persistent_tensors()
    assert {t.dtype for t in parts["parameters"]} == {torch.bfloat16}
    seen = step.describe()
    assert seen["parameter_dtype"] == seen["compute_dtype"] == "bfloat16"
    assert not seen["autocast"]


@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_switches_are_set_both_ways(tf32):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not tf32
    resolve_precision(option("tf32" if tf32 else "fp32"), CUDA, AMPERE).apply()
    assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert torch.backends.cudnn.allow_tf32 is tf32


def test_batch_norm_trains_under_mixed_precision():
    config = make_config(Norms, SumOutput)
    config.precision = option("amp")
    step = build_step(config, CPU)
    step([{"x": torch.randn(8, 4)}], [8])
    assert step.model.blocks[0].norm.running_mean.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["fp32", "tf32", "amp", "amp_fp16", "bf16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_steps_on_a_gpu_never_wait_for_it_and_agree_with_the_cpu(name, checkpointing):
    config = make_config()
    config.precision = option(name)
    config.ckpt.enabled = checkpointing
    config.train.max_grad_norm, config.train.ema_decay = 1.0, 0.99
    step = build_step(config, torch.device("cuda"))
    batches = [{k: v.cuda() for k, v in global_batch(n).items()} for n in range(5)]
    results = [step([batches[0]], [16], global_weight=16)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        results += [step([batch], [16], global_weight=16) for batch in batches[1:]]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    plain = make_config()
    plain.train.max_grad_norm = 1.0
    expected = train(build_step(plain, CPU), 5, [16])
    losses = [float(result.loss) for result in results]
    assert relative(expected, losses) < (1e-4 if name == "fp32" else 0.02)
