"""What the command, the supervisor and the ranks must agree on. Cheap to import."""

from __future__ import annotations

import signal

# Run with `python -c` and one argument; sys.path comes first, so that each process finds the
# package where the command found it.
_BOOT = (
    "import json, sys; spec = json.loads(sys.argv[1]); sys.path[:] = spec['sys_path']; "
    "from sweeper.launch.{module} import main; main(spec)"
)
SUPERVISOR_BOOT = _BOOT.format(module="supervisor")
RANK_BOOT = _BOOT.format(module="rank")

NOT_STARTED = 121  # exit code of a process that could not become a rank
CANNOT_WRITE = 122  # exit code of a rank that failed and could not write down why

STACK_SIGNAL = signal.SIGUSR1  # a rank answers it with its Python stacks, in its error log
