"""Locks that live in a session of the engine: a row that a transaction has locked, or an advisory lock.

An owner has a connection of its own, from its first claim to its release (`session.py`). The engine queues those who
wait: the first waiter of each client is in the engine's queue by a statement that is not answered yet.

The server ends a session that was silent for a ttl, and frees its lock. The holder is not silent: it pings at a third
of that. Whether the session is still there is looked at several times a second.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from gripfast.core.ports import (
    Capabilities,
    Claim,
    Granted,
    Hold,
    LockInfo,
    Page,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ConfigurationError, Reason
from gripfast.stores.sql import protocol
from gripfast.stores.sql.conversation import TRIES, may_repeat
from gripfast.stores.sql.descriptors import ended
from gripfast.stores.sql.faults import CHECK_SERVER
from gripfast.stores.sql.inspection import Inspection
from gripfast.stores.sql.link import Link, SessionInbox
from gripfast.stores.sql.permit_sessions import PermitSessions
from gripfast.stores.sql.ports import Dialect, Fault
from gripfast.stores.sql.queues import queue_of
from gripfast.stores.sql.requests import Requests, Sweeps, no_answer
from gripfast.stores.sql.session import WAIT_SLICE, Session
from gripfast.stores.sql.store import SLOW_PACE

if TYPE_CHECKING:
    from gripfast.stores.sql.rw_sessions import RWSessions

CAPABILITIES = Capabilities(push=True, session=True, lists=True, processes=True, sees_death=True)


def capabilities(dialect: Dialect, mode: str) -> Capabilities:
    has_rw = mode in dialect.rw_modes
    return replace(CAPABILITIES, rwlocks=has_rw, downgrades=has_rw and dialect.rw_modes[mode])


class SessionStore(PermitSessions, Store):
    def __init__(self, link: Link, mode: str, sessions: dict[str, Session] | None = None) -> None:
        """With `sessions` it releases what another store has: that of an event loop."""
        self.mode = mode
        self.capabilities = capabilities(link.dialect, mode)
        self.engine = link.dialect.name
        self.sessions: dict[str, Session] = {} if sessions is None else sessions
        self._link = link
        self._queues = link.queues
        self._scripts = link.dialect.scripts
        self._requests = Requests(link)
        self.inspection = Inspection(self._requests, mode)
        self._sweeps = Sweeps(self._requests, functools.partial(self._scripts.sweep_sessions, mode))
        self._rw: RWSessions | None = None

    def rw(self) -> RWSessions:
        """Loaded when somebody uses them."""
        if self._rw is None:
            from gripfast.stores.sql.rw_sessions import RWSessions

            self._rw = RWSessions(self._requests, self.mode, self.sessions)
        return self._rw

    def inbox(self) -> SessionInbox:
        return self._link.new_session_inbox()

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        name, owner, queues = claim.name, claim.owner, self._queues
        if claim.share is not None:
            name = queue_of(name)
        if (
            claim.inbox is not None
            and owner not in self.sessions  # otherwise it is in the engine's queue, and may have got the lock
            and not queues.goes_ahead(name, owner)
            and queues.join(name, owner, claim.inbox) is None
        ):
            return queues.behind(name, SLOW_PACE)
        try:
            answer = await self._claim(claim)
        except ConfigurationError:  # nothing is left there, so nobody will clean up
            self._lose(owner)
            queues.leave(name, owner)
            raise
        if claim.inbox is not None:
            if isinstance(answer, Granted):
                queues.leave(name, owner)
            else:
                queues.answered(name, owner, answer)
        return answer

    async def _claim(self, claim: Claim, tried: int = 0) -> Granted | Taken | Unreachable:
        session = self.sessions.get(claim.owner)
        if session is None:
            connection = await self._link.open()
            if isinstance(connection, Fault):
                return no_answer(connection)
            if claim.share is None:
                session = Session(self._requests, self.mode, claim.name, connection)
            else:
                session = self.rw().new_session(claim, claim.share, connection)
            self.sessions[claim.owner] = session
        fault = await session.get(claim)
        if fault is not None:
            return await self._failed(session, claim, fault, tried)
        if session.phase == "granted":
            return Granted(session.token, claim.ttl, session.dated)
        return await self._taken(session, claim)

    async def _failed(self, session: Session, claim: Claim, fault: Fault, tried: int) -> Granted | Taken | Unreachable:
        """A connection that was kept for too long is exchanged, and one to a server that is no primary any more."""
        if fault.kind == "read_only":
            self._link.leave_server()
            session.connection.cut()
        if not session.connection.is_open:
            self._lose(claim.owner)
            if may_repeat(fault, session.phase == "new" and not session.tries, tried):
                return await self._claim(claim, tried + 1)
        # What failed may never have left, on a shared connection; what its own session has is to be cleaned up.
        return no_answer(fault._replace(was_sent=fault.was_sent or claim.owner in self.sessions))

    async def _taken(self, session: Session, claim: Claim) -> Granted | Taken | Unreachable:
        is_lock = claim.share is None
        looked = await (self.inspection.inspect(claim.name) if is_lock else self.rw().first_holder(claim.name))
        if isinstance(looked, Unreachable):
            return looked
        if claim.inbox is None:
            if looked is None and session.tries < TRIES:  # somebody only looked at it, or is about to get its token
                session.tries += 1
                return await self._claim(claim)
            await self._end(claim.owner)
        return Taken(looked, 0 if looked is None else looked.token, WAIT_SLICE)

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Reason | Unreachable | None]:
        """All are sent before the first answer is awaited. A session that is being released is left alone."""
        timeout = min([self._link.timeout, within, *(max(0.05, hold.ttl / 3) for hold in holds)])
        until = self._link.now() + timeout
        mine = [session for hold in holds if (session := self.sessions.get(hold.owner)) and session.turn.take_now()]
        try:
            sent = [await self._send_ping(hold, mine, until) for hold in holds]
            return [
                await self._pinged(hold, until) if each == "sent" else each
                for hold, each in zip(holds, sent, strict=True)
            ]
        finally:
            for session in mine:
                session.turn.leave()

    async def _send_ping(
        self, hold: Hold, mine: Sequence[Session], until: float
    ) -> Reason | Unreachable | Literal["sent"] | None:
        session = self.sessions.get(hold.owner)
        if session is None:
            return "session"
        if session not in mine:
            return self._requests.refused("the last request of this session is not answered yet: try again")
        if session.connection.conversation.is_unanswered:  # of an earlier round: too old to date anything by
            late = await self._pinged(hold, until)
            if late is not None:
                return late
        session.send_ping(hold.ttl)
        return "sent"

    async def _pinged(self, hold: Hold, until: float) -> Reason | Unreachable | None:
        session = self.sessions.get(hold.owner)
        if session is None:
            return "session"
        is_held = await session.pinged(until)
        if is_held is None:
            return self._requests.refused(f"no answer in time: {CHECK_SERVER}")
        if not is_held:
            self._lose(hold.owner)
            return "session"
        if session.ttl != hold.ttl:
            session.ttl = hold.ttl
            await self._requests.run(session.set_ttl(hold.owner, protocol.microseconds(hold.ttl)))
        return None

    def look(self) -> Sequence[tuple[str, Reason]]:
        held = {owner: each.connection for owner, each in self.sessions.copy().items() if each.phase == "granted"}
        over = ended(connection.fileno() for connection in held.values())
        return [
            (owner, "session")
            for owner, connection in held.items()
            if not connection.is_open or connection.fileno() in over
        ]

    # -- releasing -----------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        session = self.sessions.get(hold.owner)
        if session is None or session.phase != "granted":
            return "session"
        answer = await self._end(hold.owner)
        sweeps = self._sweeps if hold.share is None else self.rw().sweeps
        sweeps.releases_left -= 1
        if sweeps.releases_left == 0 or self._link.now() >= sweeps.due_at:
            await sweeps.run()
        return answer

    async def _end(self, owner: str) -> Reason | Unreachable | None:
        """The lock is freed, and the connection kept for the next one. One that is silent, or breaks now, is cut: that
        frees the lock, too."""
        session = self.sessions.get(owner)
        if session is None:
            return "session"
        connection = session.connection
        had_ended = not connection.is_open or connection.fileno() in ended([connection.fileno()])
        answer = await session.free()
        if had_ended or (isinstance(answer, Fault) and answer.kind == "gone"):
            self._lose(owner)
            return "session" if session.phase == "granted" else None
        if isinstance(answer, Fault):
            connection.cut()
            return unreachable(answer.error)
        self.sessions.pop(owner, None)
        self._link.put_back(connection)
        return None if session.was_freed(answer) else "session"

    def _lose(self, owner: str) -> None:
        session = self.sessions.pop(owner, None)
        if session is not None:
            session.connection.cut()  # whoever is in the middle of a request closes it

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        return [await self._abandon(hold) for hold in holds]

    async def _abandon(self, hold: Hold) -> Unreachable | None:
        """By ending the session, unless it only waits: whatever was under way on it ends, too."""
        trouble: Unreachable | None = None
        waiting = self.sessions.get(hold.owner)
        if waiting is not None and self._can_leave_queue(waiting) and await waiting.leave_queue():
            mine = self.sessions.pop(hold.owner, None)
            if mine is not None:  # otherwise another who cleans up for this owner has ended it meanwhile
                self._link.put_back(mine.connection)
        # Not before: who is cancelled or interrupted meanwhile leaves it to the next who cleans up, and who ends it.
        session = self.sessions.pop(hold.owner, None)
        if session is not None:
            connection, conversation = session.connection, session.connection.conversation
            is_there = connection.fileno() not in ended([connection.fileno()])
            connection.cut()
            fault = await self._requests.end_session(conversation.session, conversation.birth) if is_there else None
            if fault is not None and fault.kind in ("down", "gone"):
                trouble = unreachable(fault.error)
        self._queues.leave(hold.name if hold.share is None else queue_of(hold.name), hold.owner)
        return trouble

    def _can_leave_queue(self, session: Session) -> bool:
        """Only where the answer can be read: not for a loop, from a thread."""
        return session.phase == "waiting" and self._link.reads(session.connection)

    # -- inspection ----------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        return await self.inspection.inspect(name)

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        return await self.inspection.page(prefix, after)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """The holder only sees that its session has ended: there is nobody to tell the note to."""
        return await self.inspection.force_release(name)

    # -- the end -------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._link.stop_waiting()
        self._queues.wake_all()

    async def close(self) -> None:
        """No session outlives its client, nor does what is locked in it."""
        for owner in list(self.sessions):
            self._lose(owner)
        await self._link.close()
