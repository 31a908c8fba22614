"""Imported once by the process that forks the ranks, so that no rank has to.

Hydra looks for plugins, and submitit for entry points, by scanning all that is installed.
"""

from hydra.core.plugins import Plugins
from submitit.core.plugins import get_job_environments

import hydra_plugins.sweeper_launcher._job  # noqa: F401  # what a rank calls

Plugins.instance()
get_job_environments()
