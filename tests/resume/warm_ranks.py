"""A process that has imported torch and forks the ranks of attempts: each starts in no time.

It reads one JSON object a line, an attempt, and answers with the exit codes of its ranks.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo  # the optimizers import it
from exit_codes import PREEMPTED, SUPERSEDED
from omegaconf import OmegaConf

from sweeper.config import Config
from sweeper.fence import Superseded
from sweeper.place import Place
from sweeper.preemption import Preempted
from sweeper.run import run


def rank_main(order: dict[str, Any], rank: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.environ.update(
            order["environment"], SWEEPER_RANK=str(rank), SWEEPER_LOCAL_RANK=str(rank)
        )
        place = Place.from_environment()
        place.attempt_dir.mkdir(exist_ok=True)
        log = os.open(place.attempt_dir / f"rank{rank}.err", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order["largest_file_bytes"] is not None:
            most = order["largest_file_bytes"]
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        torch.set_num_threads(1)
        schema = OmegaConf.structured(Config)
        config = OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.create(order["config"])))
        run(config)  # type: ignore[arg-type]  # what to_object gives back is a Config
        code = 0
    except Preempted as stop:
        (place.attempt_dir / f"stopped.rank{rank}").write_text(str(stop.step))
        code = PREEMPTED
    except Superseded:
        code = SUPERSEDED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    gc.collect()
    gc.freeze()  # the ranks need not look through what they will not free
    sys.path.insert(0, str(Path(__file__).parent))
    for line in sys.stdin:
        order = json.loads(line)
        pids = []
        for rank in range(int(order["environment"]["SWEEPER_WORLD_SIZE"])):
            pid = os.fork()
            if pid == 0:
                rank_main(order, rank)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    serve()
