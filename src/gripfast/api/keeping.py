"""What clients need for releases that leave the name taken: `min_hold` and `once()`. Loaded by those who use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gripfast.core.ports import Hold, Unreachable, to_raise
from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from gripfast.api.base import AnyClient
    from gripfast.api.settings import LockSettings
    from gripfast.core.ports import LockInfo


def check_keeps(client: AnyClient, what: str) -> None:
    if not client.capabilities.keeps:
        raise ConfigurationError(
            f"{what} does not work on {client.where}, because a released lock is free there at once: use Redis, "
            "etcd, PostgreSQL or MySQL with mode=lease, or SQLite"
        )


def settings_of_once(client: AnyClient, name: str, ttl: float | None, **others: Any) -> LockSettings:
    check_keeps(client, "once()")
    if client._config.factory.once_needs:
        raise ConfigurationError(
            f"once() needs {client._config.factory.once_needs} on {client.where}, because a failover could forget what "
            "is done: set it in the URL, see docs/redis-replicas.md"
        )
    return client._settings(name, ttl, renew=True, max_hold=None, reentrant=False, on_lost=None, is_once=True, **others)


async def done(client: AnyClient, key: str) -> LockInfo | None:
    """The record that it was done, if there is one."""
    if not client.capabilities.keeps:
        return None
    info = await client._store().inspect(key)
    if isinstance(info, Unreachable):
        raise to_raise(info.error)
    return info if info is not None and info.kept == "done" else None


async def forget(client: AnyClient, key: str) -> bool:
    """By the owner id of the record: whoever begins in the same moment keeps the lock."""
    check_keeps(client, "forget()")
    record = await done(client, key)
    if record is None:
        return False
    answer = await client._store().release(Hold(key, record.owner, client._config.ttl))
    if isinstance(answer, Unreachable):
        raise to_raise(answer.error)
    return answer is None
