"""An application that keeps records and can fail in every way; it trains nothing."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeper.errors import DivergedError, UserError
from sweeper.launch.errors import Cancelled, RunFailed
from sweeper.launch.packed import PackedConfig
from sweeper.launch.runs import Resources, Run
from sweeper.place import Place
from sweeper.record import (
    RECORD_FILE,
    Identity,
    Record,
    RecordError,
    State,
    Status,
    now,
    read_record,
    write_record,
    write_state,
)

HERE = Path(__file__).parent


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


def act(what: str, config: OmegaConf, place: Place) -> None:
    if what == "raise":
        raise ValueError(f"rank {place.rank} has had enough")
    if what == "oom":
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")
    if what == "peer":  # what a surviving rank says
        time.sleep(0.2)
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    if what == "diverge":
        raise DivergedError("the loss is nan at step 3")
    if what == "exit":
        sys.exit(3)
    if what == "quit":  # no record, exit code 0
        sys.exit(0)
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sleep":
        time.sleep(config.seconds)
    if what == "fill":  # the disk, to its last byte
        with Path("filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
    if what == "freeze":  # the file system can be read only from here on
        sweep_dir = str(place.run_dir.parent)
        subprocess.run(["mount", "--bind", sweep_dir, sweep_dir], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", sweep_dir], check=True)
    if what == "wait":
        while not Path("go").exists():
            time.sleep(0.02)
    if what == "stubborn":  # ignores SIGTERM, and so do its children
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        multiprocessing.Process(target=time.sleep, args=(600,)).start()
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        time.sleep(600)


def task(config: OmegaConf) -> float:
    place = Place.from_environment()
    started = place.attempt_dir / f"started.rank{place.rank}"
    started.write_text(json.dumps({"pid": os.getpid(), "environment": dict(os.environ)}))
    print(f"rank {place.rank} of {HydraConfig.get().job.num}")
    if place.rank == 0:
        state = State(state="running", attempt=place.attempt, phase="measure", step=1)
        state.pid = os.getpid()
        write_state(place.run_dir, state)
    act(config.do if place.rank == config.rank else config.others, config, place)
    if place.rank == 0:
        record = Record(
            identity=identity(OmegaConf.to_container(config), config.seed),
            attempt=place.attempt,
            status=Status.COMPLETED,
            phase="done",
            finished_at=now(),
        )
        record.hardware.shares_node_with = place.neighbours()
        record.hardware.visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        write_record(place.run_dir, record)
    return float(config.seed)


def identity(plain: dict, seed: int) -> Identity:
    text = json.dumps({k: v for k, v in plain.items() if k != "rerun"}, sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    return Identity(
        sweep="test",
        run_id=name,
        config_id=name,
        variant=f"do={plain['do']}+seed={seed}+ranks={plain['ranks']}",
    )


class Application:
    def plan(self, configs, overrides) -> list[Run]:
        runs: dict[str, Run] = {}
        for number, config in enumerate(configs):
            plain = {k: v for k, v in OmegaConf.to_container(config).items() if k != "hydra"}
            if plain["do"] == "wrong":
                raise UserError("do", "wrong is wrong", "use do=ok")
            who = identity(plain, plain["seed"])
            if who.run_id in runs:
                runs[who.run_id].job_numbers = [*runs[who.run_id].job_numbers, number]
                continue
            run_dir = Path(config.hydra.sweep.dir).resolve() / f"{plain['do']}-{who.run_id}"
            try:
                record = read_record(run_dir / RECORD_FILE)
                keep = config.rerun == "none" or record.status is Status.COMPLETED
            except (FileNotFoundError, RecordError):
                keep = False
            runs[who.run_id] = Run(
                identity=who,
                config=PackedConfig(config),
                plain=plain,
                run_dir=run_dir,
                resources=Resources.from_config(config),
                job_numbers=[number],
                keep=keep,
                skip="not today" if plain["do"] == "skip" else None,
            )
        return list(runs.values())


task.sweeper_application = Application()


def count_compositions() -> list[None]:
    compose, calls = ConfigLoaderImpl.load_sweep_config, []

    def counted(self, *args, **kwargs):
        calls.append(None)
        return compose(self, *args, **kwargs)

    ConfigLoaderImpl.load_sweep_config = counted
    return calls


if __name__ == "__main__":
    compositions = count_compositions()
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
    finally:
        print("torch imported:", "torch" in sys.modules, "compositions:", len(compositions))
