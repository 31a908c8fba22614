"""An application that keeps records, for jobs of Slurm; it trains nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from sweeper.errors import UserError
from sweeper.launch.errors import Cancelled, RunFailed
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Resources, Run
from sweeper.place import Place
from sweeper.record import (
    RECORD_FILE,
    Identity,
    Record,
    State,
    Status,
    now,
    read_record,
    write_record,
    write_state,
)

HERE = Path(__file__).parent
NOTED = (
    "CUDA_VISIBLE_DEVICES",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_CPUS_PER_TASK",
    "OMP_NUM_THREADS",
    "MINE",
)


class Preempted(Exception):  # noqa: N818  # nothing went wrong
    """The run has saved itself, because it was told to."""


def count(config: DictConfig, place: Place) -> None:
    """`steps` steps of a tenth of a second each; it saves itself when told to, and goes on."""
    told = []
    signal.signal(signal.SIGUSR2, lambda *_: told.append(True))
    saved = place.run_dir / f"saved.rank{place.rank}"
    done = json.loads(saved.read_text()) if saved.exists() else []
    steps = config.steps if place.attempt == 0 else config.steps_later or config.steps
    while len(done) < steps:
        time.sleep(0.1)
        done.append([place.attempt, len(done)])
        if place.rank == 0:
            heart(place, step=len(done))
        if told:
            saved.write_text(json.dumps(done))
            raise Preempted(f"saved after {len(done)} steps")
    (place.run_dir / f"steps.rank{place.rank}").write_text(json.dumps(done))


def heart(place: Place, step: int) -> None:
    state = State(state="running", attempt=place.attempt, phase="measure", step=step)
    state.pid, state.host, state.heartbeat_at = os.getpid(), socket.gethostname(), now()
    write_state(place.run_dir, state)


def act(what: str, config: DictConfig, place: Place) -> None:
    if what == "raise":
        raise ValueError(f"rank {place.rank} has had enough")
    if what == "exit":
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "sleep":
        time.sleep(config.seconds)
    if what == "meet":  # until so many ranks of the whole sweep have started
        deadline = time.time() + 90
        while time.time() < deadline:
            if len(list(place.run_dir.parent.glob("*/attempt0/started.rank*"))) >= config.meet:
                return
            time.sleep(0.2)
        raise TimeoutError("the other runs did not start while this one ran")
    if what == "stubborn":
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(config.seconds)
    if what == "count":
        count(config, place)


def task(config: DictConfig) -> float:
    place = Place.from_environment()
    noted = {name: os.environ.get(name) for name in NOTED}
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "rank": place.rank,
        "local_rank": place.local_rank,
        "world_size": place.world_size,
        "at": time.time(),
    }
    (place.attempt_dir / f"started.rank{place.rank}").write_text(json.dumps({**about, **noted}))
    if place.rank == 0:
        heart(place, step=0)
    act(config.do if place.rank == config.rank else config.others, config, place)
    (place.attempt_dir / f"ended.rank{place.rank}").write_text(json.dumps({"at": time.time()}))
    if place.rank == 0:
        record = Record(
            identity=identity(_plain(config)),
            attempt=place.attempt,
            status=Status.COMPLETED,
            phase="done",
            started_at=now(),
            finished_at=now(),
        )
        write_record(place.run_dir, record)
    return float(config.seed)


def _plain(config: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(config, resolve=False)
    return {str(k): v for k, v in plain.items() if k not in ("hydra", "rerun")}


def identity(plain: dict[str, Any]) -> Identity:
    text = json.dumps(plain, sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    variant = f"do={plain['do']}+ranks={plain['ranks']}+seed={plain['seed']}"
    return Identity(sweep="test", run_id=name, config_id=name, variant=variant)


class Application:
    def plan(self, configs: list[DictConfig], overrides: object) -> list[Run]:
        runs: dict[str, Run] = {}
        for number, config in enumerate(configs):
            who = identity(_plain(config))
            if who.run_id in runs:
                continue
            run_dir = Path(config.hydra.sweep.dir).resolve() / f"{config.do}-{who.run_id}"
            try:
                record = read_record(run_dir / RECORD_FILE)
                keep = config.rerun == "none" or record.status is Status.COMPLETED
            except FileNotFoundError:
                keep = False
            runs[who.run_id] = Run(
                identity=who,
                config=PackedConfig(config),
                plain=_plain(config),
                run_dir=run_dir,
                resources=Resources.from_config(config),
                job_numbers=[number],
                keep=keep,
            )
        return list(runs.values())


task.sweeper_application = Application()  # type: ignore[attr-defined]  # read by the launcher

if __name__ == "__main__":
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(version_base="1.3", config_path=str(HERE), config_name="config")(task)()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except RunFailed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except Cancelled:
        sys.exit(130)
