"""Who waits for a lock, also where the engine can't tell: then those of this process are counted, who have said so in
the log and whose attempt is not over."""

import logging
from collections.abc import Iterable
from typing import Any

_LOG = logging.getLogger("gripfast.lease")


class _Taken(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.told: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, str) and "waiting as owner" in record.msg and isinstance(record.args, tuple):
            name, owner = record.args
            self.told.add((str(name), str(owner)))


_taken = _Taken()


def watch_for_waiters(client: Any) -> None:
    """Before they wait, if the store of this client does not see them."""
    if not client.capabilities.waiters_seen and _taken not in _LOG.handlers:
        _LOG.addHandler(_taken)
        _LOG.setLevel(logging.DEBUG)


def waiters_among(clients: Iterable[Any], name: str) -> int:
    clients = list(clients)
    twins = [twin for client in clients if hasattr(client, "_twins") for twin in client._twins._clients.values()]
    return sum(
        (name, mark.owner) in _taken.told
        for client in [*clients, *twins]
        if client._runtime is not None
        for mark in client._runtime.env.ledger.marks()
        if mark.name == name and not mark.granted
    )


def was_waited_for(name: str) -> bool:
    """Whether anyone of this process was ever told that it is taken."""
    return any(told == name for told, _ in list(_taken.told))
