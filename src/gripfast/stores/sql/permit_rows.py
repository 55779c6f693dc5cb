"""Between rows and what `stores/permits.py` decides on: all pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from gripfast.core.ports import Broken, Kind, LockInfo, Loss, PermitHolder, PermitInfo
from gripfast.stores import holder as holders
from gripfast.stores.granting import Now
from gripfast.stores.permits import Holder, Pool, Settlement, Waiter
from gripfast.stores.sql.permit_ports import PermitScripts
from gripfast.stores.sql.ports import Rows
from gripfast.stores.sql.protocol import Row, flag, microseconds, number, read_note, text
from gripfast.stores.sql.statement import Query


class Key(NamedTuple):
    kind: Kind
    name: str


class State(NamedTuple):
    """What the engine knows about a name."""

    pool: Pool
    holders: list[Holder]
    broken: dict[str, str | None]
    """Owners that were released by force, and what they are to be told."""
    queue: list[Waiter]
    now: Now

    def why_gone(self, owner: str) -> Loss:
        note = self.broken.get(owner)
        if note is not None:
            return Broken(note)
        return "broken" if owner in self.broken else "expired"


def read_state(answer: list[Rows]) -> State | None:
    """From the answer of `begin` or `look`; None if nobody knows the name."""
    names, held, queued = answer[-3:]
    if not names.rows:
        return None
    token, limit, since_us, now_us = map(number, names.rows[0])
    now = Now(now_us / 1_000_000, now_us, lambda details: False)
    living = [_read_holder(row) for row in held.rows if row[-1] is None]
    broken = {text(row[0]): read_note(row[-1]) for row in held.rows if row[-1] is not None}
    return State(Pool(token, limit, since_us), living, broken, [_read_waiter(row) for row in queued.rows], now)


def _read_holder(row: Row) -> Holder:
    owner, n, slots, token, expires_us, ttl_us, since_us, details, _ = row
    ttl, expires = number(ttl_us) / 1_000_000, number(expires_us) / 1_000_000
    return Holder(text(owner), number(n), _slots(slots), number(token), ttl, expires, number(since_us), text(details))


def _read_waiter(row: Row) -> Waiter:
    ticket, owner, n, ttl_us, seen_us, details, channel, is_deaf = row
    ttl, seen, address = number(ttl_us) / 1_000_000, number(seen_us) / 1_000_000, text(channel)
    return Waiter(
        number(ticket), text(owner), number(n), ttl, seen, text(details), address, flag(is_deaf), asks=not address
    )


def _slots(column: bytes | None) -> tuple[int, ...]:
    return tuple(map(int, text(column).split(","))) if column else ()


def changes(
    scripts: PermitScripts, key: Key, before: State, settlement: Settlement, note: str | None = None
) -> list[Query]:
    """What has to be written. Empty if nothing changes. With a note, in JSON, those who were removed are remembered."""
    queries: list[Query] = []
    told = set() if note is None else {each.owner for each in settlement.removed}
    for owner in settlement.gone:
        queries += (
            scripts.break_holder(*key, owner, note or "") if owner in told else scripts.delete_holder(*key, owner)
        )
    for waiter in settlement.dropped:
        queries += scripts.delete_waiter(*key, waiter.owner)
    if settlement.pool != before.pool:
        queries += scripts.write_name(*key, *settlement.pool)
    for each in settlement.written.values():
        queries += _write_holder(scripts, key, each)
    for waiter in [*(waiter for waiter, _ in settlement.handed), *settlement.told]:
        queries += scripts.notify(waiter.address, waiter.owner) if waiter.address else []
    return queries


def _write_holder(scripts: PermitScripts, key: Key, each: Holder) -> list[Query]:
    slots = ",".join(map(str, each.slots))
    expires_us, ttl_us = microseconds(each.expires), microseconds(each.ttl)
    return scripts.write_holder(
        *key, each.owner, each.n, slots, each.token, expires_us, ttl_us, each.since_us, each.details
    )


def holder_info(name: str, each: Holder, now: Now) -> LockInfo:
    """One of the holders, as that of a lock."""
    details = holders.read_details(each.details) or holders.Details()
    left = each.expires - now.clock
    return holders.lock_info(name, each.owner, each.token, details, each.since_us, left, waiters=0)


def read_infos(kind: Kind, rows: Sequence[Row]) -> list[PermitInfo]:
    """From rows of `inspect` or `page`; names that nobody has are left out."""
    held = itertools.groupby((row for row in rows if row[2] is not None), key=lambda row: row[:2])
    return [
        PermitInfo(text(name), kind, number(limit), tuple(map(_read_shown, group)), waiters=0)
        for (name, limit), group in held
    ]


def _read_shown(row: Row) -> PermitHolder:
    _, _, owner, n, slots, token, expires_in_us, since_us, card = row
    details = holders.read_details(text(card)) or holders.Details()
    since, left = holders.read_moment(number(since_us)), number(expires_in_us) / 1_000_000
    return PermitHolder(
        text(owner), number(n), _slots(slots), number(token), details.label, details.host, details.pid, since, left
    )
