"""A Hydra application that knows nothing of sweeper."""

import json
import os
import random
import sys
import threading

import hydra


class OddError(Exception):
    """Can be pickled, and not read back."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    what = cfg.get("do")
    if what == "package":
        import userpkg

        return userpkg.NAME
    if what == "random":
        import numpy

        values = [random.random(), float(numpy.random.rand())]
        if "torch" in sys.modules:
            import torch

            values += [float(torch.rand(1)), torch.get_num_threads()]
        return values
    if what == "environment":
        return {
            "environment": dict(os.environ),
            "cores": sorted(os.sched_getaffinity(0)),
            "forked": "sweeper.launch.supervisor" in sys.modules,
        }
    if what == "cuda":
        import torch

        return [torch.cuda.device_count(), float(torch.ones(2, device="cuda").sum())]
    if what == "raise":
        raise ValueError(f"{cfg.x} is wrong")
    if what == "odd":
        raise OddError(1, 2)
    if what == "lock":
        return threading.Lock()
    if what == "exit":
        sys.exit(4)
    return cfg.get("x")


if __name__ == "__main__":
    # What the sweeper got back, for the test.
    from hydra.core.utils import JobReturn

    seen = []

    def value(job):
        seen.append({"status": job.status.name, "value": job._return_value})
        return

    JobReturn.return_value = property(value, JobReturn.return_value.fset)
    try:
        main()
    finally:
        print("RETURNS", json.dumps(seen, default=lambda v: f"{type(v).__name__}: {v}"))
