"""The text that carries a detached lease to whoever adopts it.

It has what the adopter must know to ask for it: the name, the owner id, how much of a `min_hold` is left, and what the
holder says of itself. It has no password. But whoever has the text, and may use the store, may adopt the lock: it is a
key.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gripfast.core import rules
from gripfast.core.handover import not_there
from gripfast.core.kept import MIN_HOLD, Keep, kept
from gripfast.errors import ConfigurationError, LeaseLost

if TYPE_CHECKING:
    from gripfast.api.base import AnyClient
    from gripfast.api.lease import Handle
    from gripfast.api.settings import LockSettings

_BEGINS = "gripfast-lease-1."
_ALIKE = ({"postgres", "mysql", "sql"}, {"redis", "sentinel", "valkey"})
"""Kinds that may mean one store: an engine of SQLAlchemy does not say which of them it is for; the server that
Sentinels name has a URL of its own, too."""


class Detached(NamedTuple):
    store: str
    """What kind."""
    name: str
    owner: str
    token: int
    ttl: float
    min_hold: float | None
    """What was left of it."""
    at: float
    """By the wall clock, for people."""
    prefix: str
    label: str | None


def check_detachable(lease: Handle[Any]) -> None:
    check_hands_over(lease._client, "detach()")
    state = lease._state
    if state.want.share is not None:
        raise ConfigurationError(
            f"{lease.name!r} is not a lock, and only locks can be handed over: use client.lock(name)"
        )
    if state.want.is_once:
        raise ConfigurationError(
            f"the lease of once({lease.name!r}) can't be detached: do the work inside its block, or use a lock"
        )
    others = [each for ref in state.handles if (each := ref()) is not None and each is not lease]
    if any(not each._is_released for each in others):
        raise ConfigurationError(
            f"another lease holds the re-entrant lock {lease.name!r}, too: release that lease before detach()"
        )


def check_hands_over(client: AnyClient, what: str) -> None:
    if not client.capabilities.hands_over:
        raise ConfigurationError(
            f"{what} does not work on {client.where}, because a lock there belongs to one session or client: use "
            "Redis, etcd, PostgreSQL or MySQL with mode=lease, or SQLite"
        )


def write(lease: Handle[Any], now: float) -> str:
    keep = lease._runtime.env.ledger.kept(lease.owner, now)
    left = None if keep is None or keep.seconds < rules.TTL_MIN else keep.seconds
    kind = lease._client._config.kind
    prefix, label = lease._client._config.prefix, lease._state.want.label
    detached = Detached(kind, lease.name, lease.owner, lease.token, lease.ttl, left, time.time(), prefix, label)
    return _BEGINS + base64.urlsafe_b64encode(json.dumps(detached).encode()).decode()


def read(text: object, client: AnyClient) -> Detached:
    """`client`: by which it is to be found."""
    if isinstance(text, bytes | bytearray):
        raise ConfigurationError("this is bytes, as queues return them, not the text of a lease: pass text.decode()")
    detached, kind, prefix = _read(text), client._config.kind, client._config.prefix
    if detached is None:
        raise ConfigurationError(
            "this is not a text that lease.detach() returns or `gripfast acquire` prints: pass that text, whole and "
            "unchanged"
        )
    if detached.store != kind and not any({kind, detached.store} <= alike for alike in _ALIKE):
        raise ConfigurationError(
            f"the lease on {detached.name!r} was detached on a store of the kind {detached.store!r}, and this client "
            f"uses {kind!r}: connect to the same store"
        )
    if detached.prefix != prefix:
        raise ConfigurationError(
            f"the lease on {detached.name!r} was detached by a client with prefix={detached.prefix!r}, and this client "
            f"has prefix={prefix!r}: connect with the same prefix"
        )
    return detached


def _read(text: object) -> Detached | None:
    if not isinstance(text, str) or not text.strip().startswith(_BEGINS):
        return None
    try:
        found = json.loads(base64.b64decode(text.strip().removeprefix(_BEGINS), altchars=b"-_", validate=True))
        detached: Any = Detached(*found)
        rules.checked_name(detached.name)
        rules.checked_ttl(detached.ttl)
        rules.checked_min_hold(detached.min_hold)
        rules.checked_label(detached.label)
        rules.checked_prefix(detached.prefix)
    except (ValueError, TypeError, RecursionError):
        return None
    is_owner = isinstance(detached.owner, str) and detached.owner.isascii() and 0 < len(detached.owner) <= 200
    return detached if is_owner and isinstance(detached.store, str) and not kept(detached.owner) else None


def settings_of_adopted(
    client: AnyClient, text: str, ttl: float | None, label: str | None, **others: Any
) -> tuple[LockSettings, str]:
    """And the owner id that has it."""
    check_hands_over(client, "adopt()")
    detached = read(text, client)
    others |= {"label": detached.label if label is None else label, "min_hold": detached.min_hold}
    ttl = detached.ttl if ttl is None else ttl
    settings = client._settings(detached.name, ttl, reentrant=False, wait=None, **others)
    return settings, detached.owner


async def renew(client: AnyClient, text: str, ttl: float | None) -> LeaseLost | None:
    """Without adopting it: the text stays valid. The error if that owner does not have it any more."""
    check_hands_over(client, "renew")
    detached = read(text, client)
    loss = await client._renew(detached.name, detached.owner, detached.ttl if ttl is None else ttl)
    return None if loss is None else not_there(detached.name, loss)


async def release(client: AnyClient, text: str) -> LeaseLost | None:
    """The renewal tells whether it has expired: not every store tells it to who releases what nobody has taken since.

    When it was detached is known by the clock of another machine only. So the whole rest of its `min_hold` counts from
    now on."""
    check_hands_over(client, "release")
    detached = read(text, client)
    lost = await renew(client, text, None)
    if lost is not None:
        return lost
    keep = None if detached.min_hold is None else Keep(MIN_HOLD + detached.owner, detached.min_hold)
    loss = await client._free(detached.name, detached.owner, keep)
    return None if loss is None else not_there(detached.name, loss)
