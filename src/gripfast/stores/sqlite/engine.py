"""The engine: each request is one transaction, by the boot clock of this machine.

Uncontended, a claim and a release are one statement each. Everything else reads the row and the queue, lets `granting`
decide, writes what it decided, and pushes after the commit. A push that reaches nobody goes to the next in the queue.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gripfast import machine
from gripfast.core import rules
from gripfast.core.ports import (
    Broken,
    Capabilities,
    Claim,
    Granted,
    Hold,
    LockInfo,
    Loss,
    Page,
    Taken,
)
from gripfast.stores import granting
from gripfast.stores.granting import Now, Outcome, Row, Waiter
from gripfast.stores.holder import is_gone, read_holder, vouched_for, without_process, write_holder
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.protocol import PAGE, lock_info
from gripfast.stores.sqlite import protocol, scripts
from gripfast.stores.sqlite.connections import Connections
from gripfast.stores.sqlite.mailbox import Mailbox, grant_message, send

if TYPE_CHECKING:
    from gripfast.stores.sqlite.permits import SqlitePermits

RENEW_CHUNK = 500
"""Renewals per transaction: others get their turn in between."""

SWEEP_EVERY, SWEEP_STRETCH = 500, 1000
"""After so many claims, so many rows are looked at for names that were idle for a day: two for each claim, so that
looking keeps pace with new names."""


_BEHIND_ALL = b""
"""SQLite sorts bytes behind every text."""


class SqliteEngine:
    def __init__(self, path: Path, synchronous: str, request_timeout: float) -> None:
        self.capabilities = capabilities(synchronous)
        self.inboxes = Inboxes()
        self._path = path
        self._boot = machine.boot_id()
        self._connections = Connections(path, synchronous, request_timeout)
        self._mailbox = Mailbox(path, self.inboxes)
        self._details = functools.lru_cache(maxsize=256)(write_holder)  # of this process: a fork makes a new engine
        self._claims = int.from_bytes(os.urandom(4)) % SWEEP_EVERY
        self._permits_made: SqlitePermits | None = None

    def claim(self, claim: Claim) -> Granted | Taken:
        if claim.share is not None:
            return self.permits().claim(claim, claim.share)
        self._claims += 1
        if not self._claims % SWEEP_EVERY:
            self._connections.run(self._sweep)
        token = self._connections.run(self._claim_free, claim)
        return Granted(token, claim.ttl) if token else self._claim_slowly(claim)

    def _claim_slowly(self, claim: Claim) -> Granted | Taken:
        address = self._mailbox.open() if claim.inbox is not None else ""
        if claim.inbox is not None:
            self.inboxes.add(claim.owner, claim.inbox)
        answer, outcome, watched = self._connections.run(self._claim_queued, claim, address)
        self._push(claim.name, outcome)
        for process in [process for text in watched for process in read_holder(text).processes]:
            self._mailbox.watch(process)
        return answer

    def renew(self, holds: Sequence[Hold]) -> Sequence[Loss | None]:
        if any(hold.share is not None for hold in holds):
            return self._renew_permits(holds)
        answers: list[Loss | None] = []
        for start in range(0, len(holds), RENEW_CHUNK):
            answers += self._connections.run(self._renew, holds[start : start + RENEW_CHUNK])
        return answers

    def _renew_permits(self, holds: Sequence[Hold]) -> Sequence[Loss | None]:
        """And locks among them."""
        permits = [hold for hold in holds if hold.share is not None]
        locks = [hold for hold in holds if hold.share is None]
        answers = dict(zip((hold.owner for hold in locks), self.renew(locks), strict=True))
        for start in range(0, len(permits), RENEW_CHUNK):
            chunk = permits[start : start + RENEW_CHUNK]
            answers.update(zip((hold.owner for hold in chunk), self.permits().renew(chunk), strict=True))
        return [answers[hold.owner] for hold in holds]

    def release(self, hold: Hold) -> Loss | None:
        if hold.share is not None:
            return self.permits().release(hold, hold.share.kind)
        if hold.keep is None and self._connections.run(self._release_alone, hold):
            return None
        reason, outcome = self._connections.run(self._release_queued, hold)
        self._push(hold.name, outcome)
        return reason

    def abandon(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            if hold.share is not None:
                self.permits().abandon(hold, hold.share.kind)
                continue
            outcome = self._connections.run(self._abandon, hold)
            if outcome.handed is None:
                _push_again(outcome.row)
            self._push(hold.name, outcome)

    def inspect(self, name: str) -> LockInfo | None:
        return self._connections.run(self._inspect, name)

    def page(self, prefix: str, after: str | None) -> Page:
        return self._connections.run(self._page, prefix, after)

    def force_release(self, name: str, note: str | None = None) -> bool:
        was_held, outcome = self._connections.run(self._force_release, name, note)
        self._push(name, outcome)
        return was_held

    def permits(self) -> SqlitePermits:
        """Most programs have none. Two threads may make one each at first: nothing is kept in it but a counter."""
        if self._permits_made is None:
            from gripfast.stores.sqlite.permits import SqlitePermits

            self._permits_made = SqlitePermits(
                self._connections, self._mailbox, self.inboxes, self._details, self._boot
            )
        return self._permits_made

    def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss:
        return self._connections.run(self._adopt, hold, claim)

    def detach(self, hold: Hold) -> Loss | None:
        return self._connections.run(self._detach, hold)

    def vouch(self, hold: Hold, pid: int) -> None:
        if hold.share is not None:
            self.permits().vouch(hold, pid)
            return
        self._connections.run(self._vouch, hold, pid)

    def close(self) -> None:
        self._mailbox.close()
        self._connections.close_for_good()

    # -- the uncontended path: one statement each ------------------------------------------------------------------

    def _claim_free(self, connection: sqlite3.Connection, claim: Claim) -> int | None:
        """The token, which is the time; unless that is not larger than the last one."""
        name, owner, ttl = claim.name, claim.owner, claim.ttl
        token, expires = machine.wall_us(), machine.shared_boottime() + ttl
        values = (token, owner, ttl, expires, token, self._details(claim.told), self._boot, name, token)
        return token if connection.execute(scripts.claim_free, values).rowcount else None

    def _release_alone(self, connection: sqlite3.Connection, hold: Hold) -> bool:
        cursor = connection.execute(scripts.release_alone, (machine.wall_us(), hold.name, hold.owner))
        return cursor.rowcount == 1

    # -- everything else: read, decide, write ----------------------------------------------------------------------

    def _claim_queued(
        self, connection: sqlite3.Connection, claim: Claim, address: str
    ) -> tuple[Granted | Taken, Outcome, list[str]]:
        """The answer, what was decided, and the holder details of those whose death would make a retry worth it."""
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(claim.name)
            claimant = Waiter(0, claim.owner, claim.ttl, tx.now.clock, self._details(claim.told), address)
            outcome = granting.claim(row, tx.queue(claim.name), claimant, tx.now)
            tx.apply(claim.name, row, outcome)
            if outcome.granted:
                tx.leave(claim.owner)
                return Granted(outcome.row.token, claim.ttl), outcome, []
            watched = [] if claim.inbox is None else [outcome.row.details, *tx.enqueue(claim.name, claimant)]
            return Taken(tx.info(claim.name, outcome.row), outcome.row.token), outcome, watched

    def _renew(self, connection: sqlite3.Connection, holds: Sequence[Hold]) -> list[Loss | None]:
        with _Transaction(connection, self._boot) as tx:
            return [tx.renew(hold) for hold in holds]

    def _release_queued(self, connection: sqlite3.Connection, hold: Hold) -> tuple[Loss | None, Outcome]:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(hold.name)
            if row.owner != hold.owner:
                is_kept = hold.keep is not None and row.owner == hold.keep.owner
                return None if is_kept else tx.gone_because(row, hold.owner), Outcome(row)
            return None, tx.give_back(hold, row)

    def _abandon(self, connection: sqlite3.Connection, hold: Hold) -> Outcome:
        with _Transaction(connection, self._boot) as tx:
            tx.leave(hold.owner)
            row = tx.read(hold.name)
            return tx.give_back(hold, row) if row.owner == hold.owner else Outcome(row)

    def _take_back(self, connection: sqlite3.Connection, name: str, unreached: Waiter) -> Outcome:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(name)
            outcome = granting.take_back(row, tx.queue(name), unreached, tx.now)
            if outcome.row is not row:
                tx.apply(name, row, outcome)
                tx.return_muted(name, unreached)
            return outcome

    def _force_release(self, connection: sqlite3.Connection, name: str, note: str | None) -> tuple[bool, Outcome]:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(name)
            if granting.is_free(row, tx.now) or granting.is_done(row):
                return False, Outcome(row)
            if note is not None:
                connection.execute(scripts.write_note, (row.owner, protocol.write_note(note, tx.now.wall_us)))
            return True, tx.free(name, row, granting.broken(row))

    def _adopt(self, connection: sqlite3.Connection, hold: Hold, claim: Claim) -> Granted | Loss:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(hold.name)
            adopter = Waiter(0, claim.owner, claim.ttl, tx.now.clock, self._details(claim.told), "")
            adopted = granting.adopt(row, hold.owner, adopter, tx.now)
            if not isinstance(adopted, Row):
                return tx.gone_because(row, hold.owner) or adopted
            tx.apply(hold.name, row, Outcome(adopted))
            return Granted(adopted.token, claim.ttl)

    def _detach(self, connection: sqlite3.Connection, hold: Hold) -> Loss | None:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(hold.name)
            loss = tx.gone_because(row, hold.owner)
            if loss is None:
                connection.execute(scripts.write_details, (without_process(row.details), hold.name))
            return loss

    def _vouch(self, connection: sqlite3.Connection, hold: Hold, pid: int) -> None:
        with _Transaction(connection, self._boot) as tx:
            row = tx.read(hold.name)
            if row.owner == hold.owner:
                connection.execute(scripts.write_details, (vouched_for(row.details, pid), hold.name))

    # -- looking ---------------------------------------------------------------------------------------------------

    def _inspect(self, connection: sqlite3.Connection, name: str) -> LockInfo | None:
        reading = _Reading(connection, self._boot)
        return reading.info(name, reading.row(name))

    def _page(self, connection: sqlite3.Connection, prefix: str, after: str | None) -> Page:
        now = _now()
        rows = connection.execute(scripts.page, (after or "", prefix, PAGE)).fetchall()
        infos: list[LockInfo] = []
        for name, *columns, waiters in rows:
            if not name.startswith(prefix):
                return Page(infos, None)
            info = lock_info(name, protocol.read_row(tuple(columns), self._boot, now), waiters, now)
            if info is not None:
                infos.append(info)
        return Page(infos, rows[-1][0] if len(rows) == PAGE else None)

    # -- after the commit ------------------------------------------------------------------------------------------

    def _push(self, name: str, outcome: Outcome) -> None:
        """Tell whoever was handed the lock; who can't be told is passed over for now."""
        while (handed := outcome.handed) is not None:
            if send(handed.address, grant_message(handed.owner, outcome.row.token, handed.ttl)):
                return
            outcome = self._connections.run(self._take_back, name, handed)

    def _sweep(self, connection: sqlite3.Connection) -> None:
        """Forget idle names, a stretch at a time, from the first to the last and again.

        All processes share one place: many of them, such as `gripfast run`, end long before the last name.
        """
        (start,) = connection.execute(scripts.swept_to).fetchone() or ("",)
        (end,) = connection.execute(scripts.stretch_end, (start, SWEEP_STRETCH)).fetchone() or (None,)
        before = machine.wall_us() - rules.TOKEN_MEMORY_US
        now = _now()
        expired = (self._boot, now.clock, protocol.WALL, protocol.wall_seconds(now.wall_us))
        connection.execute(scripts.forget_idle, (start, end or _BEHIND_ALL, before, *expired))
        connection.execute(scripts.forget_absent, (self._boot, machine.shared_boottime() - rules.WAITER_WINDOW))
        connection.execute(scripts.forget_notes, (protocol.note_moment(before),))
        connection.execute(scripts.note_swept, (end or "",))


class _Reading:
    """One look at the tables, all of it at one moment of the clock."""

    def __init__(self, connection: sqlite3.Connection, boot: str) -> None:
        self._connection = connection
        self._boot = boot
        self._read_name: str | None = None
        self.now = _now()

    def columns(self, name: str) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(scripts.read_row, (name,)).fetchone()
        return row

    def row(self, name: str) -> Row:
        return protocol.read_row(self.columns(name), self._boot, self.now)

    def info(self, name: str, row: Row) -> LockInfo | None:
        (waiters,) = self._connection.execute(scripts.count_queue, (name,)).fetchone()
        return lock_info(name, row, waiters, self.now)


class _Transaction(_Reading):
    """BEGIN IMMEDIATE to COMMIT; the clock is read when the file is ours, not before."""

    def __enter__(self) -> _Transaction:
        self._connection.execute(scripts.begin)
        self.now = _now()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # A failed one is rolled back by closing its connection, which is what becomes of every failed request.
        if kind is None:
            if self._read_name is not None:
                self._connection.execute(scripts.count_in, (self._read_name,))
            self._connection.execute(scripts.commit)

    def read(self, name: str) -> Row:
        self._read_name = name
        columns = self.columns(name)
        if protocol.needs_watch(columns, self._boot):
            self._connection.execute(scripts.watch_row, (self._boot, self.now.clock, name))
        return protocol.read_row(columns, self._boot, self.now)

    def queue(self, name: str) -> Iterator[Waiter]:
        for columns in self._connection.execute(scripts.read_queue, (name,)):
            yield protocol.read_waiter(columns, self._boot)

    def apply(self, name: str, before: Row, outcome: Outcome) -> None:
        if outcome.row is not before:
            self._connection.execute(scripts.write_row, protocol.write_row(name, outcome.row, self._boot, self.now))
        for waiter in outcome.dropped:
            self.leave(waiter.owner)

    def free(self, name: str, before: Row, row: Row) -> Outcome:
        outcome = granting.free(row, self.queue(name), self.now)
        self.apply(name, before, outcome)
        return outcome

    def give_back(self, hold: Hold, row: Row) -> Outcome:
        if hold.keep is None:
            return self.free(hold.name, row, row)
        outcome = Outcome(granting.keep(row, hold.keep, without_process(row.details), self.now))
        self.apply(hold.name, row, outcome)
        return outcome

    def renew(self, hold: Hold) -> Loss | None:
        clock = self.now.clock
        arguments = (hold.ttl, clock + hold.ttl, hold.name, hold.owner, clock, self._boot)
        if self._connection.execute(scripts.renew, arguments).rowcount == 1:
            return None
        return self.gone_because(self.row(hold.name), hold.owner) or "expired"

    def gone_because(self, row: Row, owner: str) -> Loss | None:
        reason = granting.gone_because(row, owner, self.now)
        if reason != "broken":
            return reason
        note = protocol.read_note(self._connection.execute(scripts.read_note, (owner,)).fetchone())
        return reason if note is None else Broken(note)

    def enqueue(self, name: str, waiter: Waiter) -> list[str]:
        """Be queued, or show that one still is. For a newcomer the holder details of all who are before it."""
        is_new = self._connection.execute(scripts.is_queued, (waiter.owner,)).fetchone() is None
        self._connection.execute(
            scripts.enqueue,
            (name, waiter.owner, waiter.ttl, self.now.clock, self._boot, waiter.details, waiter.address),
        )
        if not is_new:
            return []
        return [text for (text,) in self._connection.execute(scripts.details_ahead, (name, waiter.owner))]

    def return_muted(self, name: str, waiter: Waiter) -> None:
        self._connection.execute(
            scripts.return_muted,
            (waiter.ticket, name, waiter.owner, waiter.ttl, waiter.seen, self._boot, waiter.details, waiter.address),
        )

    def leave(self, owner: str) -> None:
        self._connection.execute(scripts.dequeue, (owner,))


def _push_again(row: Row) -> None:
    """The owner that is given up may have been interrupted between handing over and telling."""
    if row.unconfirmed and row.owner is not None:
        send(row.unconfirmed, grant_message(row.owner, row.token, row.ttl))


def _now() -> Now:
    return Now(machine.shared_boottime(), machine.wall_us(), is_gone)


def capabilities(synchronous: str) -> Capabilities:
    return Capabilities(
        fair=True,
        push=True,
        durable_fence=synchronous == "full",
        lists=True,
        waiters_seen=True,
        processes=True,
        sees_death=True,
        tells_reason=True,
        semaphores=True,
        rwlocks=True,
        downgrades=True,
        keeps=True,
        once=True,
        hands_over=True,
    )
