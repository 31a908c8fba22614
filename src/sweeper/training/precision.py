"""Which dtypes a step uses, decided once for a device.

Autocast casts per operation and leaves the weights as they are; float16 needs its loss scaled, so
that small gradients do not vanish (Micikevicius et al., "Mixed Precision Training", ICLR 2018).
Pure bfloat16 keeps the weights themselves in the short dtype.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sweeper.config import PrecisionConfig
from sweeper.errors import UserError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Support:
    """What a device computes natively; the estimator states it for a GPU that is not there."""

    bfloat16: bool
    float16: bool
    tf32: bool


@dataclass(frozen=True)
class Precision:
    """The dtypes of a step.

    Attributes:
        name: as asked, e.g. "amp".
        compute: dtype of matrix products.
        parameters: dtype the weights are kept in.
        autocast: cast per operation.
        scaler: scale the loss, and skip steps whose gradients overflow.
        tf32: CUDA matrix products and convolutions in float32 may use TF32.
        device_type: "cpu" or "cuda".
    """

    name: str
    compute: torch.dtype
    parameters: torch.dtype
    autocast: bool
    scaler: bool
    tf32: bool
    device_type: str

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Forward passes run in it."""
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(self.device_type, dtype=self.compute)

    def apply(self) -> None:
        """Set the process's TF32 switches, off as well as on: cuDNN's default is on."""
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32

    def cast(self, model: nn.Module) -> None:
        """Cast the weights, and what enters and leaves a model whose weights are short."""
        if any(p.is_floating_point() and p.dtype != self.parameters for p in model.parameters()):
            model.to(dtype=self.parameters)
        if self.parameters != torch.float32 and not self.autocast:
            _cast_at_borders(model, self.parameters)


def native_support(device: torch.device) -> Support:
    """Ask torch what `device` supports."""
    if device.type == "cuda":
        major, _ = torch.cuda.get_device_capability(device)
        # torch counts emulated bfloat16 as support; before compute capability 8 it is no gain.
        recent = major >= 8
        return Support(
            bfloat16=torch.cuda.is_bf16_supported() and recent,
            float16=True,
            tf32=recent and torch.version.hip is None,
        )
    return Support(
        bfloat16=_cpu_autocasts(torch.bfloat16), float16=_cpu_autocasts(torch.float16), tf32=False
    )


def _cpu_autocasts(dtype: torch.dtype) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns and carries on in float32 where it cannot
        try:
            with torch.autocast("cpu", dtype=dtype):
                square = torch.ones(2, 2)
                return (square @ square).dtype == dtype
        except RuntimeError:
            return False


def resolve_precision(
    config: PrecisionConfig, device: torch.device, support: Support | None = None
) -> Precision:
    """Decide the dtypes of a step; what the device cannot do is refused, never replaced.

    `compute: best` is bfloat16 where the device has it, else float16.

    Args:
        config: what was asked.
        device: where the step runs.
        support: what the device can do; None = ask torch.

    Raises:
        UserError: a combination that makes no sense, or that the device does not support.
    """
    support = native_support(device) if support is None else support
    parameters = _DTYPES[config.parameters]
    if config.compute == "best":
        if not (support.bfloat16 or support.float16):
            raise UserError(
                "precision", f"{device.type} has neither bfloat16 nor float16", "use precision=fp32"
            )
        compute = torch.bfloat16 if support.bfloat16 else torch.float16
    else:
        compute = _DTYPES[config.compute]
    _check(config, compute, parameters)
    for dtype, supported in (
        (torch.bfloat16, support.bfloat16),
        (torch.float16, support.float16),
    ):
        if dtype in (compute, parameters) and not supported:
            raise UserError(
                f"precision={config.name}",
                f"this {device.type} device does not compute in {_name(dtype)}",
                "use precision=amp, which takes what the device has, or precision=fp32",
            )
    if config.tf32 and not support.tf32:
        where = "a CPU" if device.type == "cpu" else "this GPU"
        raise UserError(f"precision={config.name}", f"{where} has no TF32", "use precision=fp32")
    return Precision(
        name=config.name,
        compute=compute,
        parameters=parameters,
        autocast=config.autocast,
        scaler=compute == torch.float16,
        tf32=config.tf32,
        device_type=device.type,
    )


def _check(config: PrecisionConfig, compute: torch.dtype, parameters: torch.dtype) -> None:
    """Refuse combinations in which a dtype that was asked for would not be used."""
    if config.autocast and compute == torch.float32:
        raise UserError(
            "precision.autocast",
            "autocast to float32 casts nothing",
            "use precision.compute=bfloat16, float16 or best, or precision.autocast=false",
        )
    if not config.autocast and compute != parameters:
        raise UserError(
            "precision.compute",
            f"without autocast, weights in {_name(parameters)} compute in {_name(parameters)}, "
            f"not in {_name(compute)}",
            f"use precision.autocast=true, or precision.compute={_name(parameters)}",
        )
    if compute == torch.float16 and parameters != torch.float32:
        raise UserError(
            "precision.parameters",
            f"float16 computation needs weights in float32, not in {_name(parameters)}",
            "use precision.parameters=float32, or precision.compute=bfloat16",
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cast_at_borders(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast what enters the model and its weighted modules to `dtype`, what leaves it to float32.

    Inside a model, tensors made on the way (sinusoids, masks) would meet short weights as float32.
    Vectors with one number a sample, such as timesteps, enter as they are: 8 bits do not hold them.
    """

    def to_short(value: Any) -> Any:
        short = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype
        return value.to(dtype) if short else value

    def enter_model(_: nn.Module, args: Any, kwargs: Any) -> Any:
        def cast(value: Any) -> Any:
            return value if isinstance(value, Tensor) and value.ndim < 2 else to_short(value)

        return tree_map(cast, args), tree_map(cast, kwargs)

    def enter_weighted(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return tuple(map(to_short, args)), {name: to_short(v) for name, v in kwargs.items()}

    def leave_model(_: nn.Module, args: Any, output: Any) -> Any:
        def cast(value: Any) -> Any:
            floating = isinstance(value, Tensor) and value.is_floating_point()
            return value.float() if floating else value

        return tree_map(cast, output)

    for module in model.modules():
        if module is not model and next(module.parameters(recurse=False), None) is not None:
            module.register_forward_pre_hook(enter_weighted, with_kwargs=True)
    model.register_forward_pre_hook(enter_model, with_kwargs=True)
    model.register_forward_hook(leave_model)
