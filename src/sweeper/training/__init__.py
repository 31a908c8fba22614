"""What a step is: precision, checkpointing, accumulation, parallelism, optimizer."""

from sweeper.training.build import build_step
from sweeper.training.parallel import close_ranks, init_ranks
from sweeper.training.step import StepResult, TrainStep

__all__ = ["StepResult", "TrainStep", "build_step", "close_ranks", "init_ranks"]
