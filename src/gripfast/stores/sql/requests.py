"""Requests on shared connections: what can be mended is, the rest is a Fault in words.

A request has one deadline, the wait for a connection included. Its statements are limited at the server, too.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

from gripfast import machine
from gripfast.core import rules
from gripfast.core.ports import Hold, Label, Unreachable, to_raise, unreachable
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.stores import layout
from gripfast.stores.sql import protocol
from gripfast.stores.sql.conversation import TRIES, may_repeat, was_undone
from gripfast.stores.sql.link import Decide, Link
from gripfast.stores.sql.meeting import other_layout
from gripfast.stores.sql.ports import Answer, Fault, Refusal, Rows
from gripfast.stores.sql.statement import Query

CHUNK = 200
"""Statements that leave together."""

LOOK_PAUSE = 0.02
"""Seconds between two looks whether a session has ended."""

SWEEP_PACE = 60.0
"""Seconds between two looks for names that nobody has used for long."""
SWEEP_MOST, SWEEP_AFTER = 100, 25
"""Names that are looked at together, and releases after which the next are if there are more: so many more are
forgotten than are made."""


class Requests:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.scripts = link.dialect.scripts

    async def run(
        self,
        queries: Sequence[Query],
        is_repeatable: bool = True,
        within: float = math.inf,
        is_urgent: bool = False,
        owner: str | None = None,
        decide: Decide | None = None,
    ) -> list[Rows] | Fault:
        until = self.link.now() + min(self.link.timeout, within)
        answer = await self.link.request(queries, owner, until, is_urgent, decide)
        if isinstance(answer, list):
            return answer
        return await self.recover(answer, queries, until, owner, is_repeatable, is_urgent, decide)

    async def recover(
        self,
        answer: Refusal | Fault,
        queries: Sequence[Query],
        until: float,
        owner: str | None = None,
        is_repeatable: bool = True,
        is_urgent: bool = False,
        decide: Decide | None = None,
    ) -> list[Rows] | Fault:
        """The first answer to the request was this one: missing tables are made, and what may be repeated is."""
        was_sent = False
        for tried in range(TRIES):
            was_sent = was_sent or isinstance(answer, Refusal) or answer.was_sent
            if isinstance(answer, Refusal) and answer.kind == "no_table":
                if (fault := await self.make_tables(answer)) is not None:
                    return fault
                until = self.link.now() + self.link.timeout
            elif not may_repeat(answer, is_repeatable, tried):
                break
            again = await self.link.request(queries, owner, until, is_urgent, decide)
            if isinstance(again, list):
                return again
            answer = again
        fault = self.link.dialect.refused(answer) if isinstance(answer, Refusal) else answer
        return fault._replace(was_sent=fault.was_sent or was_sent)

    async def make_tables(self, lacking: Refusal) -> Fault | None:
        """None if there are tables now. Several may make them at the same time, which not every server does well. If
        this user may not, repeating the request will not help."""
        dialect, scripts = self.link.dialect, self.scripts
        numbered = [*scripts.layout_write(dialect.mode, str(layout.SQL)), *scripts.layout_read(dialect.mode)]
        made: Answer | Fault = lacking
        for _ in range(TRIES):
            made = await self.link.request([*map(Query, scripts.SCHEMA), *numbered])
            if not was_undone(made):
                break
        if isinstance(made, Refusal):
            return dialect.refused(lacking)._replace(kind=made.kind)
        return made if isinstance(made, Fault) else other_layout(dialect, made)

    async def run_each(
        self, requests: Sequence[Sequence[Query]], within: float, is_urgent: bool = False
    ) -> list[Rows] | Fault:
        """Requests that leave together; the rows of the last statement of each."""
        queries = [query for request in requests for query in request]
        answer = await self.run(queries, within=within, is_urgent=is_urgent)
        if isinstance(answer, Fault):
            return answer
        ends = itertools.accumulate(len(request) for request in requests)
        return [answer[end - 1] for end in ends]

    async def end_unanswered(self, holds: Sequence[Hold], within: float = math.inf) -> Unreachable | None:
        """A claim that was not answered must not take effect any more: its session ends."""
        ends, claims = self.link.now() + within, self.link.claims
        for owner in [hold.owner for hold in holds]:
            while (claim := claims.take_unanswered(owner)) is not None:
                left = max(0.0, ends - self.link.now())
                fault = await self.end_session(claim.conversation.session, claim.conversation.birth, left)
                if fault is not None:
                    claims.setdefault(owner, []).append(claim)
                    return unreachable(fault.error)
        return None

    async def end_session(self, session: int, birth: str, within: float = math.inf) -> Fault | None:
        """Until it is gone: the server only passes the order on."""
        ends = self.link.now() + min(within, self.link.timeout)
        queries, is_ordered = self.scripts.end_session(session, birth), False
        while (left := ends - self.link.now()) > 0.0:
            answer = await self.run(queries, within=left)
            if isinstance(answer, Fault):
                if is_ordered and self.link.now() >= ends:
                    break  # its last look came too late to be answered
                return answer
            if is_ordered and not answer[-1].rows:
                return None
            if is_ordered:
                await self.link.pause(LOOK_PAUSE)
            queries, is_ordered = self.scripts.has_session(session, birth), True
        text = f"session {session} did not end in time: try again, or end it yourself"
        return Fault(StoreUnavailable(f"{self.link.dialect.where}: {text}"))

    def refused(self, words: str) -> Unreachable:
        where = self.link.dialect.where
        return unreachable(StoreUnavailable(f"{where}: {words}", {where: words}))


class Sweeps:
    """Forgets names that nobody has used for long, after a release. The work follows the rate at which names are made
    and used, not their number."""

    def __init__(self, requests: Requests, sweep: Callable[[int, int], list[Query]]) -> None:
        self._requests = requests
        self._sweep = sweep
        self.due_at = requests.link.now() + SWEEP_PACE * requests.link.chance()
        self.releases_left = 0
        """Until the next sweep, if the last one left something to do. The store counts them down."""

    async def run(self) -> None:
        self.due_at = self._requests.link.now() + SWEEP_PACE
        answer = await self._requests.run(self._sweep(SWEEP_MOST, rules.TOKEN_MEMORY_US))
        row = None if isinstance(answer, Fault) else protocol.only(answer)
        has_more = row is not None and protocol.number(row[0]) >= SWEEP_MOST
        self.releases_left = SWEEP_AFTER if has_more else 0


def no_answer(fault: Fault) -> Unreachable:
    """To a claim: raised if repeating it will not help."""
    if fault.kind == "unstorable":
        raise ConfigurationError(str(fault.error))
    if fault.is_permanent:
        raise to_raise(fault.error)
    return unreachable(fault.error, fault.was_sent, fault.was_refused)


@functools.lru_cache(maxsize=256)
def holder_details(label: Label, pid: int) -> str:
    """Of this process."""
    return protocol.write_details(label, machine.hostname(), pid)
