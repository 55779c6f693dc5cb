"""Who holds what, since when, and how many wait: one row for each name that is taken.

`gripfast top`, the page of `gripfast serve` and other admin pages show these rows. `gripfast ls` and `show` have their
facts from here, too. `scan()` reads all rows of a store; `api/watching.py` does it again and again.

The texts of a row are those that somebody has chosen: names, labels, hosts, owners of other software. They may contain
anything. Whoever shows them makes them harmless first: `visible()`, and on a page its escaping, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from gripfast.api.client import Client
from gripfast.core.kept import kept
from gripfast.core.ports import RW_LIMIT, Capabilities, LockInfo, PermitInfo

AnyKind = Literal["lock", "semaphore", "rwlock"]
State = Literal["held", "min_hold", "done", "foreign"]
Mode = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Holder:
    """One holder of a name. Its fields are those of `LockInfo` and `PermitHolder`."""

    owner: str
    token: int
    label: str | None
    host: str
    pid: int
    since: datetime | None
    expires_in: float
    trace: str | None = None
    n: int = 1
    slots: tuple[int, ...] = ()

    @property
    def kept(self) -> Literal["min_hold", "done"] | None:
        return kept(self.owner)

    @property
    def state(self) -> State:
        """`min_hold` and `done`: nobody is at work, but the name stays taken. `foreign`: other software holds it, and
        nothing else is known of it."""
        return self.kept or ("foreign" if self.since is None else "held")

    def held_for(self, now: datetime) -> float | None:
        """Seconds; None if that is not known."""
        return None if self.since is None else max(0.0, (now - self.since).total_seconds())

    def to_json(self) -> dict[str, object]:
        """What is not known, or never ends, is null."""
        known: dict[str, object] = {
            "owner": self.owner,
            "token": self.token,
            "label": self.label,
            "host": self.host,
            "pid": self.pid,
            "since": self.since and self.since.isoformat(),
            "expires_in": None if math.isinf(self.expires_in) else round(self.expires_in, 3),
            "trace": self.trace,
        }
        return known | ({"kept": self.kept} if self.kept else {})


@dataclass(frozen=True, slots=True)
class Row:
    """One name that is taken, and all of its holders: at least one, in the order of their tokens."""

    kind: AnyKind
    name: str
    holders: tuple[Holder, ...]
    waiters: int | None
    """None if the store does not see who waits."""
    limit: int = 1
    """Of a semaphore's permits; `RW_LIMIT` of a read/write lock."""
    rate: float | None = None
    """Entries per second, at least; None if that is not known. See `api/watching.py`."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def waiting(self) -> str:
        """`waiters`, for people and for words of a line."""
        return "?" if self.waiters is None else str(self.waiters)

    @property
    def in_use(self) -> int:
        """Permits."""
        return sum(each.n for each in self.holders)

    @property
    def mode(self) -> Mode | None:
        """Of a read/write lock."""
        return None if self.kind != "rwlock" else "write" if self.holders[0].n == RW_LIMIT else "read"

    @property
    def slots(self) -> tuple[int, ...]:
        """Of a semaphore: the numbers of the permits that are in use."""
        return tuple(sorted(slot for each in self.holders for slot in each.slots))

    @property
    def token(self) -> int:
        """Of the latest holder."""
        return self.holders[-1].token

    @property
    def since(self) -> datetime | None:
        """When the first of its holders got it."""
        return min((each.since for each in self.holders if each.since), default=None)

    @property
    def expires_in(self) -> float:
        """Until the first of its holders loses it, unless that one renews."""
        return min(each.expires_in for each in self.holders)

    def to_json(self, live: bool = False) -> dict[str, object]:
        """`live`: with the rate. A read/write lock has no limit and no numbered permits, a lock none of them."""
        told: dict[str, object] = {"kind": self.kind, "name": self.name, **_use(self), "waiters": self.waiters}
        if live:
            told["entries_per_second"] = None if self.rate is None else round(self.rate, 3)
        return told | {"holders": self.holders_as_json()}

    def holders_as_json(self) -> list[dict[str, object]]:
        return [each.to_json() | _share(self, each) for each in self.holders]


def _use(row: Row) -> dict[str, object]:
    if row.kind == "semaphore":
        return {"limit": row.limit, "in_use": row.in_use}
    return {"mode": row.mode} if row.kind == "rwlock" else {}


def _share(row: Row, each: Holder) -> dict[str, object]:
    if row.kind == "semaphore":
        return {"n": each.n, "slots": list(each.slots)}
    return {"mode": row.mode} if row.kind == "rwlock" else {}


def row_of(info: LockInfo | PermitInfo, sees_waiters: bool) -> Row:
    """`sees_waiters`: of the capabilities. Without it, `info.waiters` is always 0, which says nothing."""
    waiters = info.waiters if sees_waiters else None
    if isinstance(info, LockInfo):
        who = (info.owner, info.token, info.label, info.host, info.pid, info.since, info.expires_in, info.trace)
        return Row("lock", info.name, (Holder(*who),), waiters)
    return Row(info.kind, info.name, tuple(_permit_holders(info)), waiters, info.limit)


def _permit_holders(info: PermitInfo) -> Iterator[Holder]:
    for each in info.holders:
        who = (each.owner, each.token, each.label, each.host, each.pid, each.since, each.expires_in)
        yield Holder(*who, n=each.n, slots=each.slots)


class Scan(NamedTuple):
    """All that is held, as one look through the store found it. It is no snapshot: that takes `took` seconds, and
    meanwhile locks come and go."""

    where: str
    rows: Sequence[Row]
    """By name, locks first among those of one name."""
    at: float
    """When it began, by a clock that never jumps."""
    wall: datetime
    took: float
    notes: Sequence[str]
    """What the store can't show, in words."""

    def to_json(self) -> dict[str, object]:
        return {
            "where": self.where,
            "at": self.wall.isoformat(),
            "took": round(self.took, 3),
            "notes": list(self.notes),
            "rows": [row.to_json(live=True) for row in self.rows],
        }


def scan(client: Client, prefix: str = "") -> Scan:
    """Read everything that is held: locks, and semaphores and read/write locks where the store has them."""
    began, wall, able = time.monotonic(), datetime.now(UTC), client.capabilities
    found = {row.key: row for kind in _kinds(able) for row in listed(client, prefix, kind)}  # Redis may tell one twice
    rows = [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]
    return Scan(client.where, rows, began, wall, time.monotonic() - began, notes(able))


def _kinds(able: Capabilities) -> Iterator[AnyKind]:
    if able.lists:
        yield "lock"
    if able.lists and able.semaphores:
        yield "semaphore"
    if able.lists and able.rwlocks:
        yield "rwlock"


def listed(client: Client, prefix: str, kind: AnyKind) -> Iterator[Row]:
    infos: Iterable[LockInfo | PermitInfo]
    infos = client.list(prefix) if kind == "lock" else client.list(prefix, kind=kind)
    return (row_of(info, client.capabilities.waiters_seen) for info in infos)


CANT_COUNT = "This store can't tell how many wait."


def notes(able: Capabilities) -> list[str]:
    """What a store with these capabilities can't show."""
    missing = {
        "This store can't list its locks. Look at one by its name: gripfast show NAME": not able.lists,
        CANT_COUNT: not able.waiters_seen,
        "This store is the memory of one process: the locks of other processes are not in it.": not able.processes,
    }
    return [words for words, is_so in missing.items() if is_so]


def look_up(client: Client, kind: AnyKind, name: str) -> Row | None:
    """One row, read anew; None if nobody holds it."""
    info: LockInfo | PermitInfo | None
    info = client.inspect(name) if kind == "lock" else client.inspect(name, kind)
    return None if info is None else row_of(info, client.capabilities.waiters_seen)


def break_holders(client: Client, row: Row, reason: str | None = None) -> tuple[Holder, ...]:
    """Release by force what the holders of this row have; those that still had it. A holder that came later keeps it:
    whoever was shown this row did not mean that one.

    Of a lock, another holder may still come in the moment between the look and the release."""
    if row.kind != "lock":
        return tuple(
            each
            for each in row.holders
            if client.force_release(row.name, reason, kind=row.kind, owner=each.owner)
        )  # fmt: skip
    now = client.inspect(row.name)
    is_same = now is not None and now.owner == row.holders[0].owner
    return row.holders if is_same and client.force_release(row.name, reason) else ()


Order = Literal["name", "kind", "host", "held", "expires", "waiting", "rate"]
_NEVER = datetime.max.replace(tzinfo=UTC)
ORDERS: dict[Order, Callable[[Row], tuple[object, ...]]] = {
    "name": lambda row: (row.name, row.kind),
    "kind": lambda row: (row.kind, row.name),
    "host": lambda row: (row.holders[0].host, row.holders[0].pid, row.name),
    "held": lambda row: (row.since or _NEVER, row.name),
    "expires": lambda row: (row.expires_in, row.name),
    "waiting": lambda row: (-(row.waiters or 0), row.name),
    "rate": lambda row: (-(row.rate or 0.0), row.name),
}
"""What looks most in need of attention comes first: the longest held, the soonest to expire, the most waited for."""


def ordered(rows: Iterable[Row], by: Order, backwards: bool = False) -> list[Row]:
    return sorted(rows, key=ORDERS[by], reverse=backwards)


def matching(rows: Iterable[Row], text: str) -> list[Row]:
    """The rows that contain every word of the text, in a name, kind, label, host or pid; case does not count."""
    words = text.casefold().split()
    return [row for row in rows if has_all(searchable(row), words)]


def has_all(searchable: str, words: Iterable[str]) -> bool:
    return all(word in searchable for word in words)


def searchable(row: Row) -> str:
    """What a filter looks at."""
    parts = [row.name, row.kind]
    for each in row.holders:
        # Of our own owner ids any number is a part. Those of other software are all that is known of it.
        parts += (each.label or "", each.host, str(each.pid), each.state, each.owner if each.state == "foreign" else "")
    return "\n".join(parts).casefold()
