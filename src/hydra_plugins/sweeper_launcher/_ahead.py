"""Imported once by the process that forks the ranks, so that no rank has to.

Hydra's store of configs, which every rank unpickles, names the classes of all plugins that are
installed; submitit looks for its plugins by the entry points of all that is installed; and the
first interpolation builds the tables of OmegaConf's grammar.
"""

from hydra.core.plugins import Plugins
from omegaconf import OmegaConf
from submitit.core.plugins import get_job_environments

import hydra_plugins.sweeper_launcher._job  # noqa: F401  # what a rank calls

Plugins.instance()
get_job_environments()
assert OmegaConf.create({"value": 1, "same": "${value}"}).same == 1
