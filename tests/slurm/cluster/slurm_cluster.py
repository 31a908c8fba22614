"""A real Slurm on this one machine, for the tests: two emulated nodes with made-up GPUs.

Every daemon is a child of this process, in the foreground; configuration, keys, logs and the
accounting database lie in one directory. Nothing below /etc or /var is touched. Needs root (device
files, namespaces) and Debian's slurm-wlm, munge and, for accounting, slurmdbd, mariadb-server-core
and mariadb-client-core.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from cluster.configuration import files

NODES = ("n1", "n2")
GPUS = 8  # of each node
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
DATABASE_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "my_print_defaults")


def why_not(accounting: bool) -> str | None:
    """Why no cluster can be started here, or None."""
    if os.geteuid() != 0:
        return "starting a Slurm needs root"
    wanted = PROGRAMS + (DATABASE_PROGRAMS if accounting else ())
    missing = [name for name in wanted if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


class Cluster:
    """Use it as a context; `environment` lets commands find it.

    Args:
        accounting: with slurmdbd and a database of its own, so that sacct answers.
    """

    def __init__(self, accounting: bool) -> None:
        self.accounting = accounting
        # Short: sockets in it must stay below 108 characters.
        self.dir = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"SLURM_CONF": str(self.dir / "etc" / "slurm.conf")}

    def __enter__(self) -> Cluster:
        try:
            self._configure()
            self._start_all()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def __call__(self, *command: str) -> str:
        """The output of one of Slurm's commands, e.g. `cluster("squeue", "-h")`."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def _configure(self) -> None:
        for name in ("etc", "run", "log", "state", "spool", "dev"):
            (self.dir / name).mkdir()
        for gpu in range(GPUS):  # Slurm wants devices: these have the numbers of /dev/null
            path = self.dir / "dev" / f"gpu{gpu}"
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        key = self.dir / "etc" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for name, text in files(self.dir, NODES, GPUS, _free_ports(), self.accounting).items():
            path = self.dir / "etc" / name
            path.write_text(text)
            path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)

    def _start_all(self) -> None:
        run, etc = self.dir / "run", self.dir / "etc"
        self._start(
            "munged",
            ["munged", "--foreground", "--force", f"--key-file={etc}/munge.key",
             f"--socket={run}/munge.socket", f"--pid-file={run}/munged.pid",
             f"--log-file={self.dir}/log/munge", f"--seed-file={run}/munge.seed"],
        )  # fmt: skip
        self._wait("munged", lambda: (run / "munge.socket").exists())
        if self.accounting:
            self._start_database()
        self._start("slurmctld", ["slurmctld", "-D"])
        self._wait("slurmctld", lambda: self._works("scontrol", "ping"))
        for node in NODES:
            self.start_node(node)
        for node in NODES:
            self._wait(f"slurmd-{node}", lambda node=node: self.state(node) == "idle")

    def _start_database(self) -> None:
        run, etc = self.dir / "run", self.dir / "etc"
        subprocess.run(
            ["mariadb-install-db", f"--defaults-file={etc}/my.cnf", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True,
        )  # fmt: skip
        self._start("mariadbd", ["mariadbd", f"--defaults-file={etc}/my.cnf"])
        self._wait("mariadbd", lambda: (run / "mysql.sock").exists())
        # The only way to tell it where the database's socket is.
        self._start("slurmdbd", ["slurmdbd", "-D"], MYSQL_UNIX_PORT=str(run / "mysql.sock"))
        self._wait("slurmdbd", lambda: self._works("sacctmgr", "-n", "show", "cluster"))

    def start_node(self, node: str) -> None:
        """Start the node's daemon, under a host name of its own that its jobs see, too."""
        hosts = self.dir / "etc" / "hosts"
        script = f"hostname {node} && mount --bind {hosts} /etc/hosts && exec slurmd -D -N {node}"
        command = ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script]
        self._start(f"slurmd-{node}", command)

    def state(self, node: str) -> str:
        """idle, mixed, allocated, down, ..."""
        return self("sinfo", "-h", "-n", node, "-p", "main", "-o", "%T").strip().rstrip("*~#")

    def kill_daemon(self, node: str) -> None:
        """The node falls silent; its jobs compute on, and know nothing of it."""
        daemon = self._processes.pop(f"slurmd-{node}")
        daemon.kill()
        daemon.wait()

    def kill_job(self, job: str) -> None:
        """Kill all processes of a job, those that would report it among them.

        Args:
            job: SLURM_JOB_ID, of its own also for an element of an array.
        """
        for process in [*self._of_job(job, steps=True), *self._of_job(job, steps=False)]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    @staticmethod
    def _of_job(job: str, *, steps: bool) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_step = " ".join(process.cmdline()).startswith(f"slurmstepd: [{job}.")
                if is_step if steps else process.environ().get("SLURM_JOB_ID") == job:
                    found.append(process)
        return found

    def _start(self, name: str, command: Sequence[str], **more: str) -> None:
        with (self.dir / "log" / name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _works(self, *command: str) -> bool:
        try:
            self(*command)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def _wait(self, name: str, condition: Callable[[], bool], within_s: float = 30) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            process = self._processes[name]
            if process.poll() is not None or time.monotonic() > deadline:
                log = (self.dir / "log" / name).read_text(errors="replace")
                raise RuntimeError(f"{name} did not start: {log[-2000:]}")
            time.sleep(0.1)

    def _stop(self) -> None:
        if "slurmctld" in self._processes:
            with contextlib.suppress(subprocess.SubprocessError):
                self("scancel", "--full", "--user", "root")
                self("scancel", "--full", "--signal=KILL", "--user", "root")
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in psutil.process_iter():  # what a killed daemon left behind
            with contextlib.suppress(psutil.Error, OSError):
                ours = process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]
                if ours and process.pid != os.getpid():
                    process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def _free_ports() -> list[int]:
    """One port for each daemon that listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2 + len(NODES))]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
