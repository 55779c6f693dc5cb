"""Permits in the embedded store: semaphores and read/write locks.

Each request is one transaction: read the name with its holders and its queue, let `stores/permits.py` decide, write
what it decided. Pushes follow after the commit. One that reaches nobody is taken back, and the next ones are served.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gripfast import machine
from gripfast.core import rules
from gripfast.core.ports import Broken, Claim, Granted, Hold, Kind, Label, Loss, PermitInfo, PermitPage, Share, Taken
from gripfast.stores import permits
from gripfast.stores.granting import Now
from gripfast.stores.holder import is_gone, read_holder, vouched_for
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.permit_info import holder_info, permit_info
from gripfast.stores.permits import Holder, Pool, Settlement, Waiter
from gripfast.stores.protocol import PAGE
from gripfast.stores.sqlite import permit_scripts, protocol, scripts
from gripfast.stores.sqlite.connections import Connections
from gripfast.stores.sqlite.mailbox import Mailbox, grant_message, retry_message, send

SWEEP_EVERY = 500
"""Claims between two looks for what nobody uses any more."""


class SqlitePermits:
    def __init__(
        self,
        connections: Connections,
        mailbox: Mailbox,
        inboxes: Inboxes,
        details: Callable[[Label], str],
        boot: str,
    ) -> None:
        self._connections = connections
        self._mailbox = mailbox
        self._inboxes = inboxes
        self._details = details
        self._boot = boot
        self._claims = int.from_bytes(os.urandom(4)) % SWEEP_EVERY

    def claim(self, claim: Claim, share: Share) -> Granted | Taken:
        self._claims += 1
        if not self._claims % SWEEP_EVERY:
            self._connections.run(self._sweep)
        address = "" if claim.inbox is None else self._mailbox.open()
        if claim.inbox is not None:
            self._inboxes.add(claim.owner, claim.inbox)
        while True:
            answer, settlement = self._connections.run(self._claim, claim, share, address)
            self._push(share.kind, claim.name, settlement)
            if not settlement.more or isinstance(answer, Granted):
                break
        if isinstance(answer, Taken) and claim.inbox is not None:
            self._watch(settlement)
        return answer

    def _watch(self, settlement: Settlement) -> None:
        """A retry is worth it when a holder's process ends, or that of somebody in the queue."""
        texts = {each.details for each in settlement.holders.values()} | {each.details for each in settlement.queue}
        for process in {process for text in texts for process in read_holder(text).processes}:
            self._mailbox.watch(process)

    def renew(self, holds: Sequence[Hold]) -> list[Loss | None]:
        return self._connections.run(self._renew, holds)

    def release(self, hold: Hold, kind: Kind) -> Loss | None:
        settlement = self._step(kind, hold.name, permits.leave, hold.owner)
        return None if settlement.removed else self._connections.run(self._why_gone, hold.owner)

    def abandon(self, hold: Hold, kind: Kind) -> None:
        _push_again(self._step(kind, hold.name, permits.leave, hold.owner))

    def downgrade(self, hold: Hold, n: int) -> Loss | None:
        settlement = self._step("rwlock", hold.name, permits.downgrade, hold.owner, n)
        _push_again(settlement)
        return None if settlement.granted is not None else self._connections.run(self._why_gone, hold.owner)

    def resize(self, name: str, limit: int) -> None:
        self._step("semaphore", name, permits.resize, limit)

    def force_release(self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None) -> bool:
        settlement = self._connections.run(self._force_release, name, kind, owner, slot, note)
        self._push(kind, name, settlement)
        return bool(settlement.removed)

    def inspect(self, name: str, kind: Kind) -> PermitInfo | None:
        return self._connections.run(self._inspect, name, kind)

    def page(self, kind: Kind, prefix: str, after: str | None) -> PermitPage:
        return self._connections.run(self._page, kind, prefix, after)

    def vouch(self, hold: Hold, pid: int) -> None:
        self._connections.run(self._vouch, hold, pid)

    # -- each one transaction --------------------------------------------------------------------------------------

    def _claim(
        self, connection: sqlite3.Connection, claim: Claim, share: Share, address: str
    ) -> tuple[Granted | Taken, Settlement]:
        with _Transaction(connection, self._boot, share.kind, claim.name) as tx:
            details = self._details(claim.told)
            claimant = Waiter(0, claim.owner, share.n, claim.ttl, tx.now.clock, details, address)
            settlement = permits.claim(tx.pool(), tx.holders(), tx.queue(), claimant, share.limit, tx.now)
            tx.apply(settlement)
            if settlement.granted is not None:
                return _granted(settlement.granted), settlement
            if claim.inbox is not None and settlement.limit_in_force is None:
                tx.enqueue(claimant)
            first = settlement.first_to_expire()
            holder = None if first is None else holder_info(claim.name, first, len(settlement.queue), tx.now)
            return Taken(holder, settlement.pool.token, limit_in_force=settlement.limit_in_force), settlement

    def _step(self, kind: Kind, name: str, decide: Callable[..., Settlement], *args: object) -> Settlement:
        settlement = self._connections.run(self._decide, kind, name, decide, *args)
        self._push(kind, name, settlement)
        return settlement

    def _decide(
        self, connection: sqlite3.Connection, kind: Kind, name: str, decide: Callable[..., Settlement], *args: object
    ) -> Settlement:
        with _Transaction(connection, self._boot, kind, name) as tx:
            settlement = decide(tx.pool(), tx.holders(), tx.queue(), *args, tx.now)
            tx.apply(settlement)
            return settlement

    def _force_release(
        self,
        connection: sqlite3.Connection,
        name: str,
        kind: Kind,
        owner: str | None,
        slot: int | None,
        note: str | None,
    ) -> Settlement:
        with _Transaction(connection, self._boot, kind, name) as tx:
            settlement = permits.force_release(tx.pool(), tx.holders(), tx.queue(), owner, slot, tx.now)
            for holder in settlement.removed:
                text = protocol.write_note(note or "", tx.now.wall_us)
                connection.execute(scripts.write_note, (holder.owner, text))
            tx.apply(settlement)
            return settlement

    def _take_back(self, connection: sqlite3.Connection, kind: Kind, name: str, unreached: Waiter) -> Settlement | None:
        with _Transaction(connection, self._boot, kind, name) as tx:
            settlement = permits.take_back(tx.pool(), tx.holders(), tx.queue(), unreached, tx.now)
            if settlement is not None:
                tx.apply(settlement)
                tx.return_muted(unreached)
            return settlement

    def _renew(self, connection: sqlite3.Connection, holds: Sequence[Hold]) -> list[Loss | None]:
        _prepare(connection)
        connection.execute(scripts.begin)
        clock = machine.shared_boottime()
        answers: list[Loss | None] = []
        for hold in holds:
            arguments = (hold.ttl, clock + hold.ttl, hold.owner, clock, self._boot)
            is_held = connection.execute(permit_scripts.renew, arguments).rowcount == 1
            answers.append(None if is_held else self._why_gone(connection, hold.owner))
        connection.execute(scripts.commit)
        return answers

    def _why_gone(self, connection: sqlite3.Connection, owner: str) -> Loss:
        note = protocol.read_note(connection.execute(scripts.read_note, (owner,)).fetchone())
        if note is None:
            return "expired"
        return Broken(note) if note else "broken"

    def _vouch(self, connection: sqlite3.Connection, hold: Hold, pid: int) -> None:
        _prepare(connection)
        connection.execute(scripts.begin)
        row = connection.execute(permit_scripts.read_details, (hold.owner,)).fetchone()
        if row is not None:
            connection.execute(permit_scripts.write_details, (vouched_for(row[0], pid), hold.owner))
        connection.execute(scripts.commit)

    def _inspect(self, connection: sqlite3.Connection, name: str, kind: Kind) -> PermitInfo | None:
        reading = _Reading(connection, self._boot, kind, name)
        waiters = sum(1 for _ in reading.queue())
        return permit_info(name, kind, reading.pool(), reading.holders(), waiters, reading.now)

    def _page(self, connection: sqlite3.Connection, kind: Kind, prefix: str, after: str | None) -> PermitPage:
        _prepare(connection)
        rows = connection.execute(permit_scripts.page, (kind, after or "", prefix, PAGE)).fetchall()
        names = [name for (name,) in rows if name.startswith(prefix)]
        infos = [info for name in names if (info := self._inspect(connection, name, kind)) is not None]
        return PermitPage(infos, names[-1] if len(names) == PAGE else None)

    def _sweep(self, connection: sqlite3.Connection) -> None:
        _prepare(connection)
        clock = machine.shared_boottime()
        connection.execute(permit_scripts.forget_expired, (self._boot, clock))
        connection.execute(permit_scripts.forget_absent, (self._boot, clock - rules.WAITER_WINDOW))
        connection.execute(permit_scripts.forget_idle, (machine.wall_us() - rules.TOKEN_MEMORY_US,))

    # -- after the commit ------------------------------------------------------------------------------------------

    def _push(self, kind: Kind, name: str, settlement: Settlement) -> None:
        to_do: deque[Settlement] = deque([settlement])
        while to_do:
            settlement = to_do.popleft()
            for waiter in settlement.told:
                send(waiter.address, retry_message(waiter.owner))
            for waiter, holder in settlement.handed:
                if not send(waiter.address, _message(holder)):
                    next_one = self._connections.run(self._take_back, kind, name, waiter)
                    if next_one is not None:
                        to_do.append(next_one)
            if settlement.more:
                to_do.append(self._connections.run(self._decide, kind, name, permits.settle))


class _Reading:
    """One look at a name, all of it at one moment of the clock."""

    def __init__(self, connection: sqlite3.Connection, boot: str, kind: Kind, name: str) -> None:
        _prepare(connection)
        self._connection = connection
        self._boot = boot
        self._key = (kind, name)
        self.now = _now()

    def pool(self) -> Pool:
        row = self._connection.execute(permit_scripts.read_pool, self._key).fetchone()
        return Pool() if row is None else Pool(*row)

    def holders(self) -> Iterator[Holder]:
        for *columns, boot, watched_by, watched_since in self._connection.execute(
            permit_scripts.read_holders, self._key
        ).fetchall():
            holder = _read_holder(columns)
            if boot != self._boot:
                since = watched_since if watched_by == self._boot else self._watch(holder.owner)
                holder = holder._replace(expires=since + holder.ttl)
            yield holder

    def queue(self) -> Iterator[Waiter]:
        for columns in self._connection.execute(permit_scripts.read_queue, self._key).fetchall():
            ticket, owner, n, ttl, seen, boot, details, address, muted = columns
            seen = seen if boot == self._boot else -math.inf
            yield Waiter(ticket, owner, n, ttl, seen, details, address, bool(muted))

    def _watch(self, owner: str) -> float:
        """A row of another boot has a time on a clock that can't be read here. It counts until it was watched,
        unchanged, for its ttl."""
        return self.now.clock


class _Transaction(_Reading):
    """BEGIN IMMEDIATE to COMMIT; the clock is read when the file is ours, not before."""

    def __enter__(self) -> _Transaction:
        self._connection.execute(scripts.begin)
        self.now = _now()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # A failed one is rolled back by closing its connection, which is what becomes of every failed request.
        if kind is None:
            self._connection.execute(scripts.commit)

    def _watch(self, owner: str) -> float:
        self._connection.execute(permit_scripts.watch_holder, (self._boot, self.now.clock, owner))
        return self.now.clock

    def apply(self, settlement: Settlement) -> None:
        run = self._connection.execute
        for owner in settlement.gone:
            run(permit_scripts.delete_holder, (owner,))
        for waiter in settlement.dropped:
            run(permit_scripts.dequeue, (waiter.owner,))
        if settlement.pool.limit:
            run(permit_scripts.write_pool, (*self._key, *settlement.pool))
        for holder in settlement.written.values():
            run(permit_scripts.write_holder, _holder_row(self._key, holder, self._boot))

    def enqueue(self, waiter: Waiter) -> None:
        """Be queued, or show that one still is."""
        values = (waiter.owner, waiter.n, waiter.ttl, waiter.seen, self._boot, waiter.details, waiter.address)
        self._connection.execute(permit_scripts.enqueue, (*self._key, *values))

    def return_muted(self, waiter: Waiter) -> None:
        values = (waiter.owner, waiter.n, waiter.ttl, waiter.seen, self._boot, waiter.details, waiter.address)
        self._connection.execute(permit_scripts.return_muted, (waiter.ticket, *self._key, *values))


def _prepare(connection: sqlite3.Connection) -> None:
    """Its tables, once for each connection: the file may have been replaced meanwhile."""
    if not getattr(connection, "has_permits", False):
        for statement in permit_scripts.schema:
            connection.execute(statement)
        connection.has_permits = True  # type: ignore[attr-defined]


def _read_holder(columns: list[Any]) -> Holder:
    owner, n, slots, token, ttl, expires, since_us, details, unconfirmed = columns
    numbers = tuple(map(int, slots.split(","))) if slots else ()
    return Holder(owner, n, numbers, token, ttl, expires, since_us, details, unconfirmed)


def _holder_row(key: tuple[Kind, str], holder: Holder, boot: str) -> tuple[Any, ...]:
    return (
        holder.owner, *key, holder.n, ",".join(map(str, holder.slots)), holder.token, holder.ttl, holder.expires,
        holder.since_us, holder.details, holder.unconfirmed, boot,
    )  # fmt: skip


def _push_again(settlement: Settlement) -> None:
    """This request may repeat one that was interrupted between handing over and telling."""
    handed = {waiter.owner for waiter, _ in settlement.handed}
    for holder in settlement.holders.values():
        if holder.unconfirmed and holder.owner not in handed:
            send(holder.unconfirmed, _message(holder))


def _granted(holder: Holder) -> Granted:
    return Granted(holder.token, holder.ttl, slots=holder.slots)


def _message(holder: Holder) -> bytes:
    return grant_message(holder.owner, holder.token, holder.ttl, holder.slots)


def _now() -> Now:
    return Now(machine.shared_boottime(), machine.wall_us(), is_gone)
