"""The environment of ranks: the person's, without what schedulers and launchers left in it."""

from __future__ import annotations

from collections.abc import Mapping

from sweeper.errors import UserError

# Of an allocation or a job that the sweep itself runs in; a rank must not take itself for a part.
_SCHEDULER = ("SLURM_", "SRUN_", "SBATCH_", "PMI_", "PMIX_", "SUBMITIT_", "SWEEPER_")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def refuse_torchrun(environ: Mapping[str, str]) -> None:
    """A sweep starts its own ranks; under torchrun it would start each of them N times.

    Raises:
        UserError: this process is a worker of torchrun.
    """
    worker = all(name in environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if worker and any(name.startswith("TORCHELASTIC_") for name in environ):
        raise UserError(
            "torchrun",
            "the sweep starts the ranks of its runs itself",
            "run the same command with python, and set gpus=N",
        )


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(_SCHEDULER)}


def thread_variables(threads: int) -> dict[str, str]:
    """For libraries that read the number of their threads when they are loaded."""
    return {"SWEEPER_THREADS": str(threads), **dict.fromkeys(THREAD_VARIABLES, str(threads))}
