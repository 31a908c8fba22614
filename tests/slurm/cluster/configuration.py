"""The configuration files of the tests' cluster."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path


def files(
    directory: Path, nodes: Sequence[str], gpus: int, ports: Sequence[int], accounting: bool
) -> dict[str, str]:
    """Text by file name, for `directory/etc`."""
    host = socket.gethostname().partition(".")[0]
    control, database, *node_ports = ports
    found = {
        "hosts": "".join(f"127.0.0.1 {name}\n" for name in ("localhost", host, *nodes)),
        "gres.conf": f"NodeName={','.join(nodes)} Name=gpu "
        f"File={directory}/dev/gpu[0-{gpus - 1}]\n",
        "slurm.conf": _slurm(directory, host, control, accounting and database)
        + "".join(
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs=16 RealMemory=64000 Gres=gpu:{gpus} Feature={name}\n"
            for name, port in zip(nodes, node_ports, strict=True)
        )
        + "PartitionName=main Nodes=ALL Default=YES MaxTime=600 PriorityTier=1 State=UP "
        "PreemptMode=REQUEUE GraceTime=30\n"
        "PartitionName=urgent Nodes=ALL MaxTime=600 PriorityTier=10 State=UP\n"
        "PartitionName=closed Nodes=ALL MaxTime=600 State=UP AllowAccounts=nobody\n",
    }
    if accounting:
        found["my.cnf"] = _MARIADB.format(dir=directory)
        found["slurmdbd.conf"] = _DATABASE.format(dir=directory, host=host, port=database)
    return found


def _slurm(directory: Path, host: str, port: int, database_port: int) -> str:
    accounting = "AccountingStorageType=accounting_storage/none\n"
    if database_port:
        accounting = (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            "AccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={database_port}\n"
            # AuthInfo's socket is not used for the connection to the database.
            f"AccountingStoragePass={directory}/run/munge.socket\n"
            "AccountingStorageTRES=gres/gpu\n"
        )
    # Numbers of jobs that an earlier cluster gave are not given again.
    first = int(time.time()) % 60_000_000
    return _SLURM.format(dir=directory, host=host, port=port, first=first) + accounting


# CPUs and memory are as claimed, whatever the machine has. A requeued job waits for `cred_expire`
# seconds before it starts again; below 5 Slurm takes 120.
_SLURM = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/run/munge.socket,cred_expire=5
FirstJobId={first}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd-%n.pid
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
GresTypes=gpu
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=300
"""

_MARIADB = """\
[mariadbd]
user=root
datadir={dir}/mysql
socket={dir}/run/mysql.sock
pid-file={dir}/run/mariadbd.pid
skip-networking
skip-grant-tables
innodb-buffer-pool-size=32M
innodb-log-file-size=16M
innodb-flush-log-at-trx-commit=0
innodb-doublewrite=0
innodb-lock-wait-timeout=900
"""

_DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={dir}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct
"""
