"""Any Hydra application: it knows nothing of this package."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path=None)
def main(config: DictConfig) -> float:
    print("x is", config.x)
    if config.x == 2:
        raise ValueError("two is one too many")
    return float(config.x)


if __name__ == "__main__":
    main()
