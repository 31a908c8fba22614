"""The run that bench/dispatch.py starts many times: import torch, one training step, say how long.

python bench/dispatch_task.py -m seed=1,2 +notes=DIR    a Hydra application, for launchers
python bench/dispatch_task.py SEED DIR                  by itself
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def train(seed: int, notes: Path) -> float:
    """One optimizer step of a small model; notes its seconds, and returns its loss."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(64, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    image, label = torch.randn(64, 32), torch.randint(10, (64,))
    started_s = time.perf_counter()
    loss = torch.nn.functional.cross_entropy(model(image), label)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
    optimizer.step()
    step_s = time.perf_counter() - started_s
    (notes / f"{seed}.json").write_text(json.dumps({"step_s": step_s, "loss": float(loss)}))
    return float(loss)


def task(config: Any) -> float:
    return train(int(config.seed), Path(config.notes))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        train(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        import hydra

        hydra.main(version_base="1.3", config_path=None)(task)()
