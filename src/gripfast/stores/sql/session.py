"""One owner's session: a connection of its own, on which it waits for the lock, holds it and frees it.

A row is committed before it is locked: a missing row locks nothing. The owner that has the lock takes a token, which is
committed at once, and pings its session once more, so that nothing is granted to a session that is gone. What can't be
ended in order ends with the session (`_spoilt`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from gripfast.core.ports import Claim
from gripfast.stores.sql import protocol
from gripfast.stores.sql.conversation import TRIES, was_undone
from gripfast.stores.sql.faults import no_answer_in
from gripfast.stores.sql.link import SessionInbox
from gripfast.stores.sql.pool import Connection
from gripfast.stores.sql.ports import Answer, Fault, Refusal, Rows
from gripfast.stores.sql.requests import Requests, holder_details
from gripfast.stores.sql.statement import Query, Value

WAIT_SLICE = 30.0
"""Seconds for which a waiter is in the engine's queue before it enters it anew: how long a dead one may stay there."""
SESSION_LEAST = 0.25
"""Seconds of silence that a session is allowed at least: less than that may be this machine's fault."""

DEMOTED = Refusal("read_only", "1290", "the server became read-only while it held locks")

Phase = Literal["new", "waiting", "locked", "granted"]


class Session:
    def __init__(self, requests: Requests, mode: str, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.turn = requests.link.new_turn()
        """Renewals and the release come from different threads or tasks."""
        self.phase: Phase = "new"
        self.token = 0
        self.ttl = 0.0
        self.dated = 0.0
        """Before its last request left."""
        self.tries = 0
        self._requests = requests
        self._link = requests.link
        self._scripts = requests.scripts
        self._mode = mode
        self._is_row = mode == "row"
        self._key: Value = None if self._is_row else self._scripts.advisory_key(self._link.dialect.database, name)
        self._mark: Value = None
        self._is_clean = True
        """Nothing was begun on it that must be ended."""

    # -- getting the lock ----------------------------------------------------------------------------------------

    async def get(self, claim: Claim) -> Fault | None:
        """As far as it can be had now; `phase` tells how far that is."""
        is_known = self.phase == "granted"
        fault: Fault | None = None
        if self.phase == "new":
            fault = await self._try(claim)
        elif self.phase == "waiting":
            fault = await self._look_at_wait(claim)
        if fault is None and self.phase == "locked":
            fault = await self._stamp(claim)
        if fault is None and self.phase == "granted" and (is_known or self._is_row):
            fault = await self._make_sure(claim)  # a token that was taken in the session itself shows it, too
        return fault

    async def _try(self, claim: Claim) -> Fault | None:
        """Without waiting. If that fails and it is to wait, it is in the engine's queue afterwards."""
        ends = self._link.now() + self._link.timeout
        for _ in range(TRIES):
            outcome = self._outcome(await self._exchange(self._attempt(claim.ttl, None)))
            if outcome != "none" or self._link.now() > ends:
                break
            if self._is_row:
                await self._exchange(self._free())  # the place of a missing row may be locked, too
                self._is_clean = True
            made = await self._requests.run(self._make_row())
            if isinstance(made, Fault) and made.kind != "busy":  # then somebody else has made it, and locked it
                return made
        if isinstance(outcome, Fault):
            return outcome
        if outcome == "busy" and claim.inbox is not None:
            self._join(claim)
            self._enter_queue(claim)
        return None

    def _join(self, claim: Claim) -> None:
        assert claim.inbox is not None
        self._link.queues.join(self.name, claim.owner, claim.inbox, is_ahead=True)

    def _make_row(self) -> list[Query]:
        return self._scripts.row_make(self.name)

    def _attempt(self, ttl: float, wait: float | None) -> list[Query]:
        """What there is of an earlier attempt ends first."""
        scripts, ttl_us = self._scripts, silence_us(ttl)
        free = [] if self._is_clean else self._free()
        self._is_clean = False
        if wait is None:
            own = scripts.row_try(self.name, ttl_us) if self._is_row else scripts.advisory_try(self._key, ttl_us)
        else:
            wait_us = protocol.microseconds(wait)
            if self._is_row:
                own = scripts.row_wait(self.name, ttl_us, wait_us)
            else:
                own = scripts.advisory_wait(self._key, ttl_us, wait_us)
        return [*free, *own]

    def _free(self) -> list[Query]:
        return self._scripts.row_free() if self._is_row else self._scripts.advisory_free(self._key)

    def _enter_queue(self, claim: Claim) -> None:
        self.connection.send(self._attempt(claim.ttl, WAIT_SLICE))
        self.phase = "waiting"  # not before: an interrupted request would be waited for in vain
        _inbox_of(claim).follow(self.connection)

    async def _look_at_wait(self, claim: Claim) -> Fault | None:
        """Whether the engine has answered by now. Not "waiting" meanwhile: an answer that is half read never comes."""
        self.phase = "new"
        answer = await self.connection.answer(self._link.now())
        if answer is None:
            self.phase = "waiting"
            _inbox_of(claim).follow(self.connection)
            return None
        outcome = self._outcome(answer)
        if isinstance(outcome, Fault):
            return outcome
        if outcome == "none":
            return await self._try(claim)
        if outcome == "busy":
            self._enter_queue(claim)
        return None

    def _outcome(self, answer: Answer | Fault) -> Fault | Literal["locked", "busy", "none"]:
        """Of an attempt."""
        if isinstance(answer, Fault):
            return answer
        if isinstance(answer, Refusal):
            if answer.kind in ("busy", "retry"):
                return "busy"
            # Without a table there is no row to be found: making the row makes it.
            return "none" if answer.kind == "no_table" and self._is_row else self._spoilt(answer)
        row = protocol.only(answer)
        if self._is_row:
            if row is None:
                return "none"
            self._mark = None if row[0] is None else row[0].decode()
        elif row is None or row[0] != b"1":
            self._is_clean = True
            return "busy"
        else:
            self._mark = self._key
        self.phase = "locked"
        return "locked"

    async def _stamp(self, claim: Claim, queries: Sequence[Query] | None = None) -> Fault | None:
        """The token; with it others see who has the lock."""
        if queries is None:
            details, ttl_us = holder_details(claim.told, os.getpid()), protocol.microseconds(claim.ttl)
            session = self.connection.conversation.session
            queries = self._scripts.grant(self._mode, self.name, claim.owner, session, self._mark, ttl_us, details)
        answer = await self._requests.run(queries) if self._is_row else await self._run(queries)
        if isinstance(answer, Fault):
            return answer
        row = protocol.only(answer)
        if row is None:
            text = "the statement that writes the token returned no row: remove triggers and rules from gripfast_grant"
            return self._spoilt(Refusal("other", "", text))
        self.token, self.ttl = protocol.number(row[0]), claim.ttl
        self.phase = "granted"
        return None

    async def _make_sure(self, claim: Claim) -> Fault | None:
        """That the session is still there, after the token was taken; this also dates it."""
        answer = await self._run(self._scripts.ping(self._mode, silence_us(claim.ttl)))
        if isinstance(answer, Fault):
            return answer
        return None if _takes_writes(answer) else self._spoilt(DEMOTED)

    # -- keeping and freeing it ----------------------------------------------------------------------------------

    def set_ttl(self, owner: str, ttl_us: int) -> list[Query]:
        """For those who look; nothing depends on it."""
        return self._scripts.set_ttl(self._mode, self.name, owner, ttl_us)

    def send_ping(self, ttl: float) -> None:
        self.connection.send(self._scripts.ping(self._mode, silence_us(ttl)))

    async def pinged(self, until: float) -> bool | None:
        """Whether the session still has the lock; None if there is no answer by then."""
        answer = await self.connection.answer(until)
        return None if answer is None else isinstance(answer, list) and _takes_writes(answer)

    async def free(self) -> list[Rows] | Fault:
        conversation, timeout = self.connection.conversation, self._link.timeout
        if not self.turn.take_now() and not await self.turn.take(timeout):
            return self._silent()
        if conversation.is_unanswered and await self.connection.answer(self._link.now() + timeout) is None:
            return self._silent()
        if not self._is_row and self.phase == "new" and self._is_clean:  # a try in vain leaves nothing
            return []
        return await self._run(self._free())

    def was_freed(self, answer: list[Rows]) -> bool:
        """Whether it had the lock until then."""
        if self._is_row or self.phase != "granted":
            return True
        row = protocol.only(answer)
        return row is not None and row[0] == b"1"

    async def leave_queue(self) -> bool:
        """Whether the connection is as it was when it was opened. The server breaks the wait off, and what it may have
        got in that moment is freed."""
        connection, timeout = self.connection, self._link.timeout
        if not connection.is_open or not self.turn.take_now():
            return False
        answer = await connection.answer(self._link.now())
        if answer is None:
            conversation = connection.conversation
            ended = await self._requests.run(self._scripts.end_wait(conversation.session, conversation.birth))
            answer = None if isinstance(ended, Fault) else await connection.answer(self._link.now() + timeout)
        if answer is None or isinstance(answer, Fault):
            return False
        left = self._leave_wait()
        return isinstance(await connection.answer(self._link.now() + timeout, to=left), list)

    def _leave_wait(self) -> list[Query]:
        return self._scripts.leave_wait(self._mode, self._key)

    # -- requests on its connection ------------------------------------------------------------------------------

    async def _exchange(self, queries: Sequence[Query]) -> Answer | Fault:
        self.dated = self._link.now()
        answer = await self.connection.answer(self.dated + self._link.timeout, to=queries)
        return self._silent() if answer is None else answer

    async def _run(self, queries: Sequence[Query]) -> list[Rows] | Fault:
        answer = await self._exchange(queries)
        if isinstance(answer, Refusal) and answer.kind == "no_table":
            if (fault := await self._requests.make_tables(answer)) is not None:
                return fault
            answer = await self._exchange(queries)
        for _ in range(TRIES):
            if not was_undone(answer):
                break
            answer = await self._exchange(queries)
        return self._spoilt(answer) if isinstance(answer, Refusal) else answer

    def _silent(self) -> Fault:
        self.connection.cut()
        return no_answer_in(self._link.dialect.where, self._link.timeout)

    def _spoilt(self, refusal: Refusal) -> Fault:
        """What it has left there nobody knows: the session ends."""
        self.connection.cut()
        return self._link.dialect.refused(refusal)


def _inbox_of(claim: Claim) -> SessionInbox:
    inbox: SessionInbox = claim.inbox  # type: ignore[assignment]
    return inbox


def silence_us(ttl: float) -> int:
    """Microseconds of silence after which the server ends a session. Longer than the lease does no harm."""
    return protocol.microseconds(max(ttl, SESSION_LEAST))


def _takes_writes(pinged: list[Rows]) -> bool:
    row = protocol.only(pinged)
    return row is not None and row[0] == b"1"
