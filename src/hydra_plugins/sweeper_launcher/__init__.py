"""Hydra's door into `sweeper.launch`: launchers `local` and `debug`, sweeper `cells`."""
