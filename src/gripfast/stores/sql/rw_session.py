"""One reader's or writer's session. It differs from that of a lock (`session.py`) in its texts, in the turnstile that a
writer keeps from one wait to the next, and in the downgrade.

What is seen of it is a row of its own, which it deletes with its release. Rows of those that have died stay until a
writer gets the lock, or until nobody has used the name for a day; the engine tells that nobody has the lock any more.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Literal

from gripfast.core.ports import Claim, Share
from gripfast.stores.sql import protocol
from gripfast.stores.sql.faults import no_answer_in
from gripfast.stores.sql.pool import Connection
from gripfast.stores.sql.ports import Answer, Fault, Refusal, Rows
from gripfast.stores.sql.queues import queue_of
from gripfast.stores.sql.requests import Requests, holder_details
from gripfast.stores.sql.rw_ports import RWScripts
from gripfast.stores.sql.session import Session, silence_us
from gripfast.stores.sql.statement import Query

PATIENCE = 0.25
"""Seconds for which a downgrade waits for another request of the same session. The watchdog may be who waits."""


class Lowering:
    """One attempt at a downgrade. It is over when its caller's frames are gone, however that came, or when it has left
    its turn: whoever keeps the exception keeps the frames."""

    def __init__(self, caller: object) -> None:
        self.has_begun = False
        """It has had its turn."""
        self.is_done = False
        self._caller = weakref.ref(caller)

    def was_interrupted(self) -> bool:
        return not self.is_done and self._caller() is None

    def was_interrupted_in_its_turn(self) -> bool:
        """As seen by the next one, whose turn it is now."""
        return self.has_begun and not self.is_done


class RWSession(Session):
    def __init__(
        self, requests: Requests, scripts: RWScripts, mode: str, name: str, share: Share, connection: Connection
    ) -> None:
        super().__init__(requests, mode, name, connection)
        self.owner = ""
        self._rw = scripts
        self._n = share.n
        database = self._link.dialect.database
        self._key = scripts.key(mode, database, name)
        self._turnstile = scripts.turnstile(mode, database, name)
        self._is_lowered = False
        """It has the lock shared, whatever it has of the turnstile."""
        self.lowering: Lowering | None = None
        self._has_waited = False

    # -- getting the lock ----------------------------------------------------------------------------------------

    def _attempt(self, ttl: float, wait: float | None) -> list[Query]:
        rw, places = self._rw, (self._mode, self.name, self._key, self._turnstile, silence_us(ttl))
        before = [] if self._is_clean else self._free()
        if wait is None:
            own = rw.try_read(*places) if self._n == 1 else rw.try_write(*places)
        else:
            if self._has_waited and self._n > 1:
                before = rw.wait_again(self._mode)
            wait_us = protocol.microseconds(wait)
            own = rw.wait_read(*places, wait_us) if self._n == 1 else rw.wait_write(*places, wait_us)
            self._has_waited = True
        self._is_clean = False
        return [*before, *own]

    def _outcome(self, answer: Answer | Fault) -> Fault | Literal["locked", "busy", "none"]:
        if self._is_row and isinstance(answer, list) and protocol.only(answer) == (b"",):
            return "busy"  # it has the row, and no turnstile
        outcome = super()._outcome(answer)
        if outcome == "busy" and self._has_waited:
            self._is_clean = False  # it may have the turnstile
        return outcome

    def _join(self, claim: Claim) -> None:
        assert claim.inbox is not None
        self._link.queues.join(queue_of(self.name), claim.owner, claim.inbox, is_ahead=True)

    def _make_row(self) -> list[Query]:
        return self._rw.make(self.name)

    async def _stamp(self, claim: Claim, queries: Sequence[Query] | None = None) -> Fault | None:
        self.owner = claim.owner
        details, ttl_us = holder_details(claim.told, os.getpid()), protocol.microseconds(claim.ttl)
        session = self.connection.conversation.session
        place = (self._mode, self.name, claim.owner, self._n)
        return await super()._stamp(claim, self._rw.grant(*place, session, self._mark, ttl_us, details))

    # -- keeping and freeing it ----------------------------------------------------------------------------------

    def set_ttl(self, owner: str, ttl_us: int) -> list[Query]:
        return self._rw.set_ttl(self._mode, self.name, owner, ttl_us)

    def _free(self) -> list[Query]:
        if self.phase == "granted":
            return self._rw.release(self._mode, self.name, self.owner, self._n, self._key)
        return self._rw.free(self._mode)

    def _leave_wait(self) -> list[Query]:
        return self._rw.free(self._mode)

    # -- from writer to reader -----------------------------------------------------------------------------------

    async def lower(self, ttl: float) -> Fault | None:
        """Repeated until it is done. Each step may be repeated, but what is had shared is not freed any more once a
        writer may have the turnstile."""
        self._n = 1
        if not self._is_lowered:
            answer = await self._asked(self._rw.lower(self._mode, self.name, self._key, silence_us(ttl)))
            if isinstance(answer, Fault):
                return answer
            row = protocol.only(answer)
            if row is None:
                return self._spoilt(Refusal("other", "", f"somebody deleted the row of {self.name!r} in gripfast_rw"))
            self._mark = protocol.text(row[1])
            self._is_lowered = True
        noted = await self._requests.run(self._rw.note_lowered(self._mode, self.name, self.owner, self._mark))
        if isinstance(noted, Fault):
            return noted
        answer = await self._asked(self._rw.leave_turnstile(self._mode, self._turnstile)) if self._is_row else []
        return answer if isinstance(answer, Fault) else None

    async def end_interrupted(self, before: Lowering | None) -> None:
        """A thread that was interrupted may have kept half an answer, and then nobody gets the rest of it."""
        if (
            before is not None
            and before.was_interrupted_in_its_turn()
            and self.connection.conversation.is_unanswered
            and await self.connection.answer(self._link.now() + PATIENCE) is None
        ):
            self.connection.cut()

    async def _asked(self, queries: Sequence[Query]) -> list[Rows] | Fault:
        """As a ping does: what is not answered in time may still be, and then the session is still good."""
        connection, now = self.connection, self._link.now()
        answer: Answer | Fault | None = None
        if not connection.conversation.is_unanswered or await connection.answer(now + PATIENCE) is not None:
            answer = await connection.answer(now + self._link.timeout, to=queries)
        if answer is None:
            return no_answer_in(self._link.dialect.where, self._link.timeout)
        return self._spoilt(answer) if isinstance(answer, Refusal) else answer
