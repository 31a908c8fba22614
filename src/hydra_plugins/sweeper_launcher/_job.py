"""What each rank of a run calls: the application's task function, by Hydra's own `run_job`.

What all runs of a sweep share (the task function, Hydra's context, its singletons) is pickled once;
a run's own pickle holds its composed config. Nothing is composed again.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write
from submitit.core.utils import cloudpickle_dump, pickle_load

from hydra_plugins.sweeper_launcher._source import restore
from sweeper.errors import UserError
from sweeper.failure import own_traceback
from sweeper.launch.errors import RemoteError
from sweeper.launch.runs import Run
from sweeper.place import Place


@dataclass
class SharedTask:
    """What the runs of a sweep have in common."""

    task_function: TaskFunction
    context: HydraContext
    singletons: Any  # Hydra's, and the resolvers registered with OmegaConf
    main_file: str | None  # of the program

    def __post_init__(self) -> None:
        # Hydra's register of plugins would make each rank import every plugin that is installed.
        instances = {
            kind: found
            for kind, found in self.singletons["instances"].items()
            if kind is not Plugins
        }
        self.singletons = {**self.singletons, "instances": instances}

    def dump(self, path: Path) -> None:
        """Raises UserError where something cannot be pickled."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            cloudpickle_dump(self, path)
        except OSError:  # of the disk
            raise
        except Exception as error:  # pickling runs code of any class
            raise UserError(
                "task function",
                f"cannot be sent to another process: {type(error).__name__}: {error}",
                "keep what cannot be pickled out of it, or use hydra/launcher=debug",
            ) from error


class PluginsOnDemand(Plugins):
    """Looks for Hydra's plugins, which takes a tenth of a second, only if a task asks for one."""

    def __init__(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name not in ("plugin_type_to_subclass_list", "class_name_to_class", "stats"):
            raise AttributeError(name)
        self._initialize()
        return self.__dict__[name]


def run_as_rank(
    task_function: TaskFunction, context: HydraContext, config: DictConfig, rank: int
) -> JobReturn:
    """`run_job`; only rank 0 writes `.hydra`, the job's log file, and calls the callbacks."""
    if rank > 0:
        config = copy.deepcopy(config)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.output_subdir = None
        context = HydraContext(config_loader=context.config_loader, callbacks=Callbacks())
        logging.basicConfig(
            stream=sys.stdout,
            level=logging.INFO,
            format=f"[%(asctime)s][rank {rank}][%(name)s][%(levelname)s] - %(message)s",
        )
    return run_job(
        task_function=task_function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
        configure_logging=rank == 0,
    )


def place_output(config: DictConfig, run: Run) -> DictConfig:
    """Let Hydra write its files into the run's own directory, for runs that keep records."""
    if run.writes_record:
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.sweep.dir = str(run.run_dir.parent)
            config.hydra.sweep.subdir = run.run_dir.name
    return config


@dataclass
class RankJob:
    """Pickled for each run; called in each of its ranks."""

    shared_file: Path
    run: Run
    return_file: Path

    def __call__(self) -> None:
        """Raises what the task raised; rank 0 leaves its JobReturn in `return_file`."""
        place = Place.from_environment()
        shared: SharedTask = pickle_load(self.shared_file)
        shared.singletons["instances"][Plugins] = PluginsOnDemand()
        Singleton.set_state(shared.singletons)
        restore(shared.task_function, shared.main_file)
        config = place_output(self.run.config.unpack(), self.run)
        result = run_as_rank(shared.task_function, shared.context, config, place.rank)
        error = result._return_value if result.status is JobStatus.FAILED else None
        if place.rank == 0:
            if self.run.writes_record:  # its config is on record; the command need not hold it
                result.cfg = result.hydra_cfg = None
            save_return(result, self.return_file)
        if error is not None:
            raise error


def save_return(result: JobReturn, path: Path) -> None:
    """Pickle it for the parent; what cannot travel is replaced by an error that says so."""
    value = result._return_value
    notes = list(getattr(value, "__notes__", ()))
    if isinstance(value, BaseException):  # a pickle leaves its traceback behind
        value.add_note("".join(own_traceback(value)))
    try:
        cloudpickle_dump(result, path)
        pickle_load(path)
    except Exception as error:  # pickling runs code of any class
        result = copy.copy(result)
        if isinstance(value, BaseException):
            result.return_value = RemoteError(f"{type(value).__name__}: {value}")
        else:
            result.status = JobStatus.FAILED
            result.return_value = RemoteError(
                f"the returned value cannot be sent back: {type(error).__name__}: {error}"
            )
        cloudpickle_dump(result, path)
    if isinstance(value, BaseException):
        value.__notes__ = notes


def load_return(path: Path) -> JobReturn | None:
    """What rank 0 left, or None where it left nothing that can be read. Removes the file."""
    try:
        result: JobReturn = pickle_load(path)
    except Exception:  # killed while writing, or never written
        return None
    with contextlib.suppress(OSError):  # a disk that has become read-only
        path.unlink()
    return result
