"""Locks that live in a session of the engine: a row that a transaction has locked, or an advisory lock.

An owner has a connection of its own, from its first claim to its release. The engine queues those who wait: the first
in line of each client stands in the engine's line by a statement that is not answered yet. Who has the lock takes a
token, committed at once, and asks its session once more, so that nothing is granted to a session that is gone.

The server ends a session that was silent for a ttl, and frees its lock. The holder is not silent: it asks at a third of
that. Whether the session is still there is looked at several times a second.
"""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gripfast.core import rules
from gripfast.core.ports import (
    Capabilities,
    Claim,
    Granted,
    Hold,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ConfigurationError, Reason, StoreUnavailable
from gripfast.stores.sql import asking, protocol
from gripfast.stores.sql.asking import Channel, Link, SessionInbox, Turn, no_answer
from gripfast.stores.sql.faults import no_answer_in
from gripfast.stores.sql.looking import Looking
from gripfast.stores.sql.ports import Answer, Fault, Refusal, Rows
from gripfast.stores.sql.statement import Ask, Value
from gripfast.stores.sql.store import SLOW_PACE

CAPABILITIES = Capabilities(
    fair=False,
    push=True,
    session=True,
    durable_fence=False,
    lists=True,
    waiters_seen=False,
    processes=True,
    sees_death=True,
)

WAIT_SLICE = 30.0
"""Seconds for which a waiter stands in the engine's line before it asks anew: how long a dead one may stay there."""
SESSION_LEAST = 0.25
"""Seconds of silence that a session is allowed at least: less than that may be this machine's fault."""
TRIES = 3
ENDED = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)

DEMOTED = Refusal("read_only", "1290", "it was set to read only while it had locks")

Phase = Literal["new", "waiting", "locked", "granted"]


@dataclass(slots=True, eq=False)
class Session:
    name: str
    channel: Channel
    key: Value
    """Of an advisory lock."""
    turn: Turn
    """Renewals and the release come from different threads or tasks."""
    phase: Phase = "new"
    mark: Value = None
    token: int = 0
    ttl: float = 0.0
    dated: float = 0.0
    """Before its last request left."""
    is_asked: bool = False
    """An answer is still to come."""
    is_clean: bool = True
    """Nothing was begun on it that must be ended."""
    tries: int = 0


class SessionStore(Looking):
    capabilities = CAPABILITIES

    def __init__(self, link: Link, mode: str, sessions: dict[str, Session] | None = None) -> None:
        """With `sessions` it gives back what another store, of another colour, has."""
        super().__init__(link, mode)
        self.sessions: dict[str, Session] = {} if sessions is None else sessions

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        name = claim.name
        if (
            claim.inbox is not None
            and claim.owner not in self.sessions  # otherwise it stands in the engine's line, and may have got it
            and not self._lines.goes_ahead(name, claim.owner)
            and self._lines.join(name, claim.owner, claim.inbox) is None
        ):
            return self._lines.behind(name, SLOW_PACE)
        try:
            answer = await self._claim(claim, name)
        except ConfigurationError:  # nothing is left there, so nobody will clean up
            self._lose(claim.owner)
            self._lines.leave(name, claim.owner)
            raise
        if claim.inbox is not None:
            self._lines.asked(name, claim.owner, answer)
        return answer

    async def _claim(self, claim: Claim, name: str, is_first: bool = True) -> Granted | Taken | Unreachable:
        session = self.sessions.get(claim.owner)
        if session is None:
            channel = await self._link.open()
            if isinstance(channel, Fault):
                return no_answer(channel)
            key = None if self.mode == "row" else self._scripts.advisory_key(self._link.dialect.database, name)
            session = self.sessions[claim.owner] = Session(name, channel, key, self._link.turn())
        is_known = session.phase == "granted"
        fault = await self._try(session, claim) if session.phase == "new" else await self._get_ahead(session, claim)
        if fault is None and session.phase == "locked":
            fault = await self._stamp(session, claim)
        if fault is None and session.phase == "granted" and (is_known or self.mode == "row"):
            fault = await self._make_sure(session, claim)  # a token that was taken in the session itself shows it, too
        if fault is not None:
            return await self._failed(session, claim, fault, is_first)
        if session.phase == "granted":
            return Granted(session.token, claim.ttl, session.dated)
        return await self._taken(session, claim)

    async def _get_ahead(self, session: Session, claim: Claim) -> Fault | None:
        return await self._look_at_wait(session, claim) if session.phase == "waiting" else None

    async def _failed(
        self, session: Session, claim: Claim, fault: Fault, is_first: bool
    ) -> Granted | Taken | Unreachable:
        """A connection that was kept for too long is exchanged, and one to a server that is no primary any more."""
        if fault.kind == "read_only":
            self._link.leave_server()
            session.channel.cut()
        if not session.channel.is_open:
            self._lose(claim.owner)
            if (fault.was_idle and session.phase == "new" and not session.tries) or (
                fault.kind == "read_only" and is_first
            ):
                return await self._claim(claim, session.name, is_first=False)
        # What failed may never have left, on a shared connection; what its own session has is to be cleaned up.
        return no_answer(fault._replace(was_sent=fault.was_sent or claim.owner in self.sessions))

    async def _try(self, session: Session, claim: Claim) -> Fault | None:
        """Without waiting. If that fails and it is to wait, it stands in the engine's line afterwards."""
        for _ in range(TRIES):
            answer = await self._ask_own(session, self._attempt(session, claim.ttl, None))
            outcome = self._outcome(session, answer)
            if outcome != "none":
                break
            if self.mode == "row":
                await self._ask_own(session, self._scripts.row_free())  # the place of a missing row may be locked, too
                session.is_clean = True
            made = await self._ask(self._scripts.row_make(session.name))
            if isinstance(made, Fault) and made.kind != "busy":  # then somebody else has made it, and locked it
                return made
        if isinstance(outcome, Fault):
            return outcome
        if outcome == "busy" and claim.inbox is not None:
            self._lines.join(session.name, claim.owner, claim.inbox, is_ahead=True)
            self._stand_in_line(session, claim)
        return None

    def _attempt(self, session: Session, ttl: float, wait: float | None) -> list[Ask]:
        """What there is of an earlier attempt ends first."""
        ttl_us = _lasts(ttl)
        scripts, is_row = self._scripts, self.mode == "row"
        free = [] if session.is_clean else scripts.row_free() if is_row else scripts.advisory_free(session.key)
        session.is_clean = False
        if wait is None:
            own = scripts.row_try(session.name, ttl_us) if is_row else scripts.advisory_try(session.key, ttl_us)
        else:
            wait_us = protocol.microseconds(wait)
            if is_row:
                own = scripts.row_wait(session.name, ttl_us, wait_us)
            else:
                own = scripts.advisory_wait(session.key, ttl_us, wait_us)
        return [*free, *own]

    def _stand_in_line(self, session: Session, claim: Claim) -> None:
        session.is_asked = True
        session.channel.send(self._attempt(session, claim.ttl, WAIT_SLICE))
        session.phase = "waiting"  # not before: an interrupted request would be waited for in vain
        inbox: SessionInbox = claim.inbox  # type: ignore[assignment]
        inbox.follow(session.channel)

    async def _look_at_wait(self, session: Session, claim: Claim) -> Fault | None:
        """Whether the engine has answered by now. Not "waiting" meanwhile: an answer that is half read never comes."""
        session.phase = "new"
        answer = await session.channel.answer(self._link.now())
        if answer is None:
            session.phase = "waiting"
            inbox: SessionInbox = claim.inbox  # type: ignore[assignment]
            inbox.follow(session.channel)
            return None
        session.is_asked = False
        outcome = self._outcome(session, answer)
        if isinstance(outcome, Fault):
            return outcome
        if outcome == "none":
            return await self._try(session, claim)
        if outcome == "busy":
            self._stand_in_line(session, claim)
        return None

    def _outcome(self, session: Session, answer: Answer | Fault) -> Fault | Literal["locked", "busy", "none"]:
        """Of an attempt."""
        if isinstance(answer, Fault):
            return answer
        if isinstance(answer, Refusal):
            if answer.kind in ("busy", "retry"):
                return "busy"
            return "none" if self._lacks(answer) else self._own_fault(session, answer)
        row = protocol.only(answer)
        if self.mode == "row":
            if row is None:
                return "none"
            session.mark = None if row[0] is None else row[0].decode()
        elif row is None or row[0] != b"1":
            session.is_clean = True
            return "busy"
        else:
            session.mark = session.key
        session.phase = "locked"
        return "locked"

    def _lacks(self, refusal: Refusal) -> bool:
        """There is no table to find a row in: making the row makes it."""
        return refusal.kind == "no_table" and self.mode == "row"

    async def _stamp(self, session: Session, claim: Claim) -> Fault | None:
        """The token; with it others see who has the lock."""
        asks = self._grant(session.name, claim, session.channel.session, session.mark)
        if self.mode == "row":
            answer: list[Rows] | Fault = await self._ask(asks)
        else:
            answer = await self._ask_own_surely(session, asks)
        if isinstance(answer, Fault):
            return answer
        row = protocol.only(answer)
        if row is None:
            return self._own_fault(session, Refusal("other", "", "a trigger on gripfast_grant hides the token"))
        session.token, session.ttl = protocol.number(row[0]), claim.ttl
        session.phase = "granted"
        return None

    async def _make_sure(self, session: Session, claim: Claim) -> Fault | None:
        """That the session is still there, after the token was taken; this also dates it."""
        asks = self._scripts.ping(self.mode, _lasts(claim.ttl))
        answer = await self._ask_own_surely(session, asks)
        if isinstance(answer, Fault):
            return answer
        return None if _takes_writes(answer) else self._own_fault(session, DEMOTED)

    async def _taken(self, session: Session, claim: Claim) -> Granted | Taken | Unreachable:
        looked = await self.inspect(claim.name)
        if isinstance(looked, Unreachable):
            return looked
        if claim.inbox is None:
            if looked is None and session.tries < TRIES:  # somebody only looked at it, or is about to get its token
                session.tries += 1
                return await self._claim(claim, session.name)
            await self._end(claim.owner)
        return Taken(looked, 0 if looked is None else looked.token, WAIT_SLICE)

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Reason | Unreachable | None]:
        """All are asked before the first answer is awaited. Who is being released is left alone."""
        timeout = min([self._link.timeout, within, *(max(0.05, hold.ttl / 3) for hold in holds)])
        until = self._link.now() + timeout
        mine = [session for hold in holds if (session := self.sessions.get(hold.owner)) and session.turn.take_now()]
        try:
            asked = [await self._send_ping(hold, mine, until) for hold in holds]
            return [
                await self._pinged(hold, until) if each == "asked" else each
                for hold, each in zip(holds, asked, strict=True)
            ]
        finally:
            for session in mine:
                session.turn.leave()

    async def _send_ping(
        self, hold: Hold, mine: Sequence[Session], until: float
    ) -> Reason | Unreachable | Literal["asked"] | None:
        session = self.sessions.get(hold.owner)
        if session is None:
            return "session"
        if session not in mine:
            return unreachable(StoreUnavailable(f"{self._link.dialect.where}: the session is asked already"))
        if session.is_asked:  # of an earlier round: too old to date anything by
            late = await self._pinged(hold, until)
            if late is not None:
                return late
        session.is_asked = True
        session.channel.send(self._scripts.ping(self.mode, _lasts(hold.ttl)))
        return "asked"

    async def _pinged(self, hold: Hold, until: float) -> Reason | Unreachable | None:
        session = self.sessions.get(hold.owner)
        if session is None:
            return "session"
        answer = await session.channel.answer(until)
        if answer is None:
            return unreachable(StoreUnavailable(f"{self._link.dialect.where}: no answer in time"))
        session.is_asked = False
        if not isinstance(answer, list) or not _takes_writes(answer):
            self._lose(hold.owner)
            return "session"
        if session.ttl != hold.ttl:
            session.ttl = hold.ttl  # for those who look; nothing depends on it
            await self._ask(self._scripts.set_ttl(self.mode, session.name, hold.owner, protocol.microseconds(hold.ttl)))
        return None

    def look(self) -> Sequence[tuple[str, Reason]]:
        held = [(owner, each) for owner, each in list(self.sessions.items()) if each.phase == "granted"]
        ended = _ended([each.channel for _, each in held])
        return [
            (owner, "session") for owner, each in held if not each.channel.is_open or each.channel.fileno() in ended
        ]

    # -- giving back ---------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        session = self.sessions.get(hold.owner)
        if session is None or session.phase != "granted":
            return "session"
        answer = await self._end(hold.owner)
        await self._sweep_now_and_then()
        return answer

    async def _end(self, owner: str) -> Reason | Unreachable | None:
        """The lock is given back, and the connection kept for the next one. One that is silent, or breaks now, is cut:
        that frees the lock, too."""
        session = self.sessions.get(owner)
        if session is None:
            return "session"
        had_ended = not session.channel.is_open or session.channel.fileno() in _ended([session.channel])
        answer = await self._freed(session)
        if had_ended or (isinstance(answer, Fault) and answer.kind == "gone"):
            self._lose(owner)
            return "session" if session.phase == "granted" else None
        if isinstance(answer, Fault):
            session.channel.cut()
            return unreachable(answer.error)
        self.sessions.pop(owner, None)
        self._link.give_back(session.channel)
        if self.mode == "row" or session.phase != "granted":
            return None
        row = protocol.only(answer)
        return None if row is not None and row[0] == b"1" else "session"

    async def _freed(self, session: Session) -> list[Rows] | Fault:
        timeout = self._link.timeout
        if not session.turn.take_now() and not await session.turn.take(timeout):
            return self._silent(session)
        if session.is_asked and await session.channel.answer(self._link.now() + timeout) is None:
            return self._silent(session)
        session.is_asked = False
        if self.mode == "row":
            return await self._ask_own_surely(session, self._scripts.row_free())
        if session.phase == "new" and session.is_clean:  # a try in vain leaves nothing
            return []
        return await self._ask_own_surely(session, self._scripts.advisory_free(session.key))

    def _lose(self, owner: str) -> None:
        session = self.sessions.pop(owner, None)
        if session is not None:
            self._link.drop(session.channel)

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        return [await self._abandon(hold) for hold in holds]

    async def _abandon(self, hold: Hold) -> Unreachable | None:
        """By ending the session, unless it only waits: whatever was under way on it ends, too."""
        trouble: Unreachable | None = None
        waiting = self.sessions.get(hold.owner)
        if waiting is not None and waiting.phase == "waiting" and await self._leaves_wait(waiting):
            self._link.give_back(self.sessions.pop(hold.owner).channel)
        # Not before: who is cancelled or interrupted meanwhile leaves it to the next who cleans up, and who ends it.
        session = self.sessions.pop(hold.owner, None)
        is_there = session is not None and session.channel.fileno() not in _ended([session.channel])
        if session is not None:
            self._link.drop(session.channel)
        if session is not None and is_there:
            fault = await self._end_session(session.channel.session, session.channel.birth)
            if fault is not None and fault.kind in ("down", "gone"):
                trouble = unreachable(fault.error)
        self._lines.leave(hold.name, hold.owner)
        return trouble

    async def _leaves_wait(self, session: Session) -> bool:
        """Whether the connection is as it was when it was opened. Who waited in vain has the server break that off, and
        frees what it may have got in that moment. Only where the answer can be read: not for a loop, from a thread."""
        channel, timeout = session.channel, self._link.timeout
        if not self._link.reads(channel) or not channel.is_open or not session.turn.take_now():
            return False
        answer = await channel.answer(self._link.now())
        if answer is None:
            asked = await self._ask(self._scripts.end_wait(channel.session, channel.birth))
            answer = None if isinstance(asked, Fault) else await channel.answer(self._link.now() + timeout)
        if answer is None or isinstance(answer, Fault):
            return False
        channel.send(self._scripts.leave_wait(self.mode, session.key))
        return isinstance(await channel.answer(self._link.now() + timeout), list)

    async def close(self) -> None:
        """No session outlives its client, nor does what is locked in it."""
        for owner in list(self.sessions):
            self._lose(owner)
        await super().close()

    # --------------------------------------------------------------------------------------------------------------

    async def _ask_own(self, session: Session, asks: Sequence[Ask]) -> Answer | Fault:
        session.channel.send(asks)
        session.is_asked = True
        answer = await session.channel.answer(self._link.now() + self._link.timeout)
        session.is_asked = False
        return self._silent(session) if answer is None else answer

    def _silent(self, session: Session) -> Fault:
        session.channel.cut()
        return no_answer_in(self._link.dialect.where, self._link.timeout)

    async def _ask_own_surely(self, session: Session, asks: Sequence[Ask]) -> list[Rows] | Fault:
        session.dated = self._link.now()
        session.channel.send(asks)
        answer = await session.channel.answer(session.dated + self._link.timeout)
        if isinstance(answer, list):
            return answer
        if answer is None:
            return self._silent(session)
        if isinstance(answer, Refusal) and answer.kind == "no_table":
            if (fault := await self._made_no_tables(answer)) is not None:
                return fault
            answer = await self._ask_own(session, asks)
        for _ in range(TRIES):
            if not isinstance(answer, Refusal) or answer.kind != "retry":
                break
            answer = await self._ask_own(session, asks)
        return self._own_fault(session, answer) if isinstance(answer, Refusal) else answer

    def _own_fault(self, session: Session, refusal: Refusal) -> Fault:
        """What it has left there nobody knows: the session ends."""
        session.channel.cut()
        return self._fault(refusal)

    def _sweeping(self) -> list[Ask]:
        return self._scripts.sweep_sessions(self.mode, asking.SWEEP_MOST, rules.TOKEN_MEMORY_US)


def _lasts(ttl: float) -> int:
    """Microseconds of silence after which the server ends a session. Longer than the lease does no harm."""
    return protocol.microseconds(max(ttl, SESSION_LEAST))


def _takes_writes(pinged: list[Rows]) -> bool:
    row = protocol.only(pinged)
    return row is not None and row[0] == b"1"


def _ended(channels: Sequence[Channel]) -> set[int]:
    """Descriptors whose other side has ended."""
    descriptors = [fd for channel in channels if (fd := channel.fileno()) >= 0]
    if not descriptors or not hasattr(select, "poll"):
        return set()
    poller = select.poll()
    for fd in descriptors:
        poller.register(fd, ENDED)
    return {fd for fd, event in poller.poll(0) if event & (ENDED | select.POLLNVAL)}
