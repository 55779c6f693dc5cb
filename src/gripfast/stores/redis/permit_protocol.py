"""Permits: from requests to packed commands, from replies to answers. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from gripfast.core.ports import Claim, Granted, Hold, Kind, LockInfo, PermitHolder, PermitInfo, Taken
from gripfast.stores.holder import Details, lock_info, read_details, read_moment
from gripfast.stores.redis import keys, permit_scripts
from gripfast.stores.redis.keys import MARK, pack
from gripfast.stores.redis.permit_parts import KEYS
from gripfast.stores.redis.protocol import PAGE, command, read_slots, times, to_bytes, to_text
from gripfast.stores.redis.scripts import Script

_HOLDER = re.compile(
    rb"(?P<n>\d{1,16}) (?P<token>\d{1,16})(?:@(?P<since>\d{1,16}))? (?P<slots>[-,\d]+) (?P<details>.*)", re.DOTALL
)


class Holder(NamedTuple):
    n: int
    token: int
    since_us: int
    slots: tuple[int, ...]
    details: Details


# Requests -------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def head(script: Script, key: str, kind: Kind) -> bytes:
    """How a call begins: all but its arguments."""
    return script.by_hash + pack(*keys_of(key, kind))


def keys_of(key: str, kind: Kind) -> list[bytes]:
    return [keys.side_key(key.encode(), _part(kind, name)) for name in KEYS]


def _part(kind: Kind, name: str) -> bytes:
    """Beside those of a lock: none of them begins like this."""
    return f"{kind}:{name}".encode()


def claim(claim: Claim, details: bytes, channel: bytes) -> bytes:
    """With an empty channel it stays out of the queue."""
    share = claim.share
    assert share is not None
    ttl = times(claim.ttl)[0]
    arguments = pack(to_bytes(claim.owner), ttl, b"%d" % share.n, b"%d" % share.limit, channel, details)
    return head(permit_scripts.CLAIM, claim.name, share.kind) + arguments


def renew(hold: Hold) -> bytes:
    arguments = pack(to_bytes(hold.owner), times(hold.ttl)[0], b"%d" % hold.shortens)
    return head(permit_scripts.RENEW, hold.name, kind_of(hold)) + arguments


def give_back(name: str, kind: Kind, owner: str) -> bytes:
    return head(permit_scripts.GIVE_BACK, name, kind) + pack(to_bytes(owner))


def downgrade(hold: Hold, n: int) -> bytes:
    return head(permit_scripts.DOWNGRADE, hold.name, kind_of(hold)) + pack(to_bytes(hold.owner), b"%d" % n)


def resize(name: str, limit: int) -> bytes:
    return head(permit_scripts.RESIZE, name, "semaphore") + pack(b"%d" % limit)


def force_release(name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None) -> bytes:
    place = b"" if slot is None else b"%d" % slot
    arguments = pack(to_bytes(owner or ""), place, (note or "").encode())
    return head(permit_scripts.FORCE_RELEASE, name, kind) + arguments


def inspect(name: str, kind: Kind) -> bytes:
    return head(permit_scripts.INSPECT, name, kind)


def scan(kind: Kind, cursor: str) -> bytes:
    """Whatever the prefix: a name stands in one of two parts of its keys."""
    pattern = b"{*}" + MARK + _part(kind, "ends") + b"*"
    return command(b"SCAN", cursor.encode(), b"MATCH", pattern, b"COUNT", b"%d" % PAGE)


def kind_of(hold: Hold) -> Kind:
    assert hold.share is not None
    return hold.share.kind


# Answers --------------------------------------------------------------------------------------------------------------


def read_claim(reply: Sequence[Any], claim: Claim, channel: bytes | None) -> Granted | Taken:
    if reply[0] == 1:
        return Granted(reply[2], claim.ttl, slots=read_slots(reply[3]))
    _, _, _, limit, token, waiters, *first = reply
    holder = read_first(claim.name, waiters, *first) if first else None
    source = channel or b"" if is_heard(reply) else b""
    return Taken(holder, token, source=source, limit_in_force=limit if limit > 0 else None)


def is_heard(taken: Sequence[Any]) -> bool:
    return bool(taken[2] == 1)


def is_in_grace(taken: Sequence[Any]) -> bool:
    return bool(taken[0] == 0 and taken[3] == -1)


def has_more(reply: Sequence[Any]) -> bool:
    """The server has more to settle: it wants another request."""
    return bool(reply[1] == 1)


def read_first(name: str, waiters: int, owner: bytes, left_ms: int, text: bytes) -> LockInfo | None:
    holder = read_holder(text)
    if holder is None:
        return None
    left = max(0, left_ms) / 1000
    return lock_info(name, to_text(owner), holder.token, holder.details, holder.since_us, left, waiters)


def read_holder(text: bytes) -> Holder | None:
    """None if it makes no sense."""
    found = _HOLDER.fullmatch(text)
    if found is None:
        return None
    since = int(found["since"] or found["token"])
    details = read_details(found["details"]) or Details()
    return Holder(int(found["n"]), int(found["token"]), since, read_slots(found["slots"]), details)


def read_info(name: str, kind: Kind, reply: Sequence[Any]) -> PermitInfo | None:
    """None if nobody has a permit. Who has no end, or whose end is past, has none."""
    now, pool, waiters, ends, texts = reply
    text_of = dict(zip(texts[::2], texts[1::2], strict=True))
    found: list[PermitHolder] = []
    for owner, ending in zip(ends[::2], ends[1::2], strict=True):
        left_ms = float(ending) - now
        holder = read_holder(text_of.get(owner, b"")) if left_ms >= 0 else None
        if holder is not None:
            found.append(_permit_holder(to_text(owner), holder, left_ms / 1000))
    found.sort(key=lambda holder: holder.token)
    limit = int(pool.split()[1]) if pool else 0
    return PermitInfo(name, kind, limit, tuple(found), waiters) if found else None


def _permit_holder(owner: str, holder: Holder, left: float) -> PermitHolder:
    details, since = holder.details, read_moment(holder.since_us)
    return PermitHolder(
        owner, holder.n, holder.slots, holder.token, details.label, details.host, details.pid, since, left
    )


def read_scan(reply: Any, kind: Kind, prefix: str) -> tuple[str, list[str]]:
    """The next cursor, and the names with this prefix."""
    cursor, found = reply
    names = [_name_of(key, kind) for key in found]
    return cursor.decode(), [name for name in names if name is not None and name.startswith(prefix)]


def _name_of(key: bytes, kind: Kind) -> str | None:
    """None if it is no key of ours."""
    tag, _, rest = key.partition(MARK)
    name = rest.partition(_part(kind, "ends") + b":")[2] or tag[1:-1]
    is_ours = keys.side_key(name, _part(kind, "ends")) == key
    return name.decode(errors="replace") if is_ours else None
