"""An application whose result is worth searching for."""

import hydra


@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    return (cfg.x - 1) ** 2 + 2.0


if __name__ == "__main__":
    main()
