"""How a sweep can end other than well."""

from __future__ import annotations

from typing import Any

from sweeper.record import Identity, Status


class RunFailed(Exception):  # noqa: N818  # it names an outcome
    """One run did not complete; its record says why.

    Args:
        identity: which run.
        status: how it ended.
        message: the reason, in one line.
    """

    def __init__(self, identity: Identity, status: Status, message: str) -> None:
        super().__init__(identity, status, message)
        self.identity = identity
        self.status = status
        self.message = message

    def __str__(self) -> str:
        name = self.identity.variant or self.identity.run_id
        return f"{name}: {self.status.value}: {self.message}"


class Cancelled(KeyboardInterrupt):
    """The person stopped the sweep; what ran was cancelled and recorded, the rest never started."""


class Detached(Exception):  # noqa: N818  # nothing went wrong
    """The runs have been handed over to the cluster, and this command does not wait for them."""


class RemoteError(Exception):
    """Stands for an exception of a run that cannot be sent between processes."""


class SupervisorError(Exception):
    """The process that starts ranks has gone; the ranks it started go on.

    Args:
        detail: what it said last.
    """

    def __init__(self, detail: str, *args: Any) -> None:
        super().__init__(detail, *args)
        self.detail = detail
