"""A user's own package: a network and the objective it is trained on."""

from mypackage.denoiser import Net, Objective

__all__ = ["Net", "Objective"]
