"""Imported once by the process that forks the ranks, so that no rank has to.

submitit looks for its plugins by the entry points of all that is installed.
"""

from submitit.core.plugins import get_job_environments

import hydra_plugins.sweeper_launcher._job  # noqa: F401  # what a rank calls

get_job_environments()
