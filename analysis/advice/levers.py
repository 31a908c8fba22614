"""What one may change about a run and still train the same model on the same data."""

from __future__ import annotations

# `setup`, `optimizer` and `input` are what imported rows call it.
LEVERS = ("optim", "optimizer", "input_size", "model.input_size", "input", "setup")

# Levers with everything below them: `ckpt` is ckpt and ckpt.blocks.
GROUPS = ("precision", "ckpt", "accum", "batch", "gpus", "parallel")


def is_lever(axis: str) -> bool:
    """Whether changing this axis can make a run fit; model, data, lr and seed are no such way."""
    return axis in LEVERS or axis.split(".", 1)[0] in GROUPS
