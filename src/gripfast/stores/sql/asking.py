"""How a store asks its server: what can be mended is, the rest is a Fault in words."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from gripfast import machine
from gripfast.core.ports import Inbox, Store, Unreachable, to_raise, unreachable
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.stores.sql import protocol
from gripfast.stores.sql.line import Lines
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Refusal, Rows
from gripfast.stores.sql.statement import Ask

TRIES = 6
"""Of a request that the server gives up because of others: deadlocks, transactions that can't be put in order."""

SWEEP_PACE = 60.0
"""Seconds between two looks for names that nobody has used for long."""
SWEEP_MOST, SWEEP_AFTER = 100, 25
"""Names that are looked at together, and releases after which the next are if there are more: so many more are
forgotten than are made."""

LOOK_PAUSE = 0.02
"""Seconds between two looks whether a session has ended."""

CHUNK = 200
"""Statements that leave together."""


class SessionInbox(Inbox, Protocol):
    def follow(self, channel: Channel) -> None:
        """Have its waiter ask when this connection has an answer."""
        ...


class Channel(Protocol):
    """One connection in one colour, with one request under way at most."""

    session: int
    birth: str
    is_open: bool

    def fileno(self) -> int: ...

    def send(self, asks: Sequence[Ask]) -> None:
        """What goes wrong is told by the answer."""
        ...

    async def answer(self, until: float) -> Answer | Fault | None:
        """None if there is none by then: it is still under way."""
        ...

    def cut(self) -> None:
        """From any thread: the end of the session."""
        ...


class Turn(Protocol):
    """Of those who use one connection."""

    def take_now(self) -> bool:
        """Whether it was free."""
        ...

    async def take(self, seconds: float) -> bool:
        """Whether it was free within so many seconds."""
        ...

    def leave(self) -> None: ...


class Link(Protocol):
    """The connections of one client to its server, in one colour."""

    dialect: Dialect
    lines: Lines
    timeout: float
    """Seconds for one request."""
    now: Callable[[], float]
    claims: dict[str, list[tuple[int, str]]]
    """Owners who have claimed something, and the sessions in which that was not answered: it may still arrive.
    Number 0 stands for one that a proxy hands around, and which is not ours to end."""

    def chance(self) -> float:
        """Between 0 and 1."""
        ...

    async def pause(self, seconds: float) -> None: ...

    def inbox(self) -> SessionInbox: ...

    def turn(self) -> Turn: ...

    async def ask(
        self, asks: Sequence[Ask], owner: str | None = None, until: float | None = None, is_urgent: bool = False
    ) -> Answer | Fault:
        """On a connection that is shared. With `owner` this is a claim. What has not left until then, or when nobody
        waits for it any more, never leaves. What is urgent does not queue; there is one such request at a time."""
        ...

    def leave_server(self) -> None:
        """It takes no writes: connections that nobody uses are closed, and the next request makes a new one."""
        ...

    async def settle(self, owners: Sequence[str]) -> None:
        """Give claims of these a moment to be answered, where somebody else reads the answers."""
        ...

    async def open(self) -> Channel | Fault:
        """A connection of one's own."""
        ...

    def give_back(self, channel: Channel) -> None:
        """It is as it was when it was opened."""
        ...

    def reads(self, channel: Channel) -> bool:
        """Whether its answers can be awaited here."""
        ...

    def drop(self, channel: Channel) -> None:
        """Nobody will use it again."""
        ...

    def hears(self, channel: str) -> bool: ...

    async def listen(self, channel: str) -> Fault | None:
        """Have whoever is first in that line told when this is notified."""
        ...

    def stop_listening(self, channel: str) -> None: ...

    def shut(self) -> None: ...

    async def close(self) -> None: ...


class Asking(Store):
    def __init__(self, link: Link) -> None:
        self._link = link
        self._lines = link.lines
        self.engine = link.dialect.name
        self._scripts = link.dialect.scripts
        self._sweeps_at = link.now() + SWEEP_PACE * link.chance()
        self._releases_left = 0
        """Until the next sweep, if the last one left something to do."""
        self._card = functools.lru_cache(maxsize=256)(_card_of_this_process)

    def inbox(self) -> Inbox:
        return self._link.inbox()

    async def _ask(
        self,
        asks: Sequence[Ask],
        owner: str | None = None,
        may_repeat: bool = True,
        within: float = math.inf,
        is_urgent: bool = False,
    ) -> list[Rows] | Fault:
        """On a shared connection. Every request may be repeated but those that are told not to be."""
        until = self._link.now() + min(self._link.timeout, within)
        answer = await self._link.ask(asks, owner, until, is_urgent)
        if isinstance(answer, list):
            return answer
        was_sent = False
        for tried in range(TRIES):
            was_sent = was_sent or isinstance(answer, Refusal) or answer.was_sent
            if isinstance(answer, Refusal) and answer.kind == "no_table":
                if (fault := await self._made_no_tables(answer)) is not None:
                    return fault
                until = self._link.now() + self._link.timeout
            elif not _may_ask_again(answer, may_repeat, tried):
                break
            answer = await self._link.ask(asks, owner, until, is_urgent)
            if isinstance(answer, list):
                return answer
        fault = self._fault(answer) if isinstance(answer, Refusal) else answer
        return fault._replace(was_sent=fault.was_sent or was_sent)

    async def _made_no_tables(self, lacking: Refusal) -> Fault | None:
        """None if there are tables now. Several may make them at the same time, which not every server does well. If
        this user may not, asking again will not help."""
        made: Answer | Fault = lacking
        for _ in range(TRIES):
            made = await self._link.ask([Ask(each) for each in self._scripts.SCHEMA])
            if not isinstance(made, Refusal) or made.kind != "retry":
                break
        if isinstance(made, Refusal):
            return self._fault(lacking)._replace(kind=made.kind)
        return made if isinstance(made, Fault) else None

    async def _ask_each(
        self, requests: Sequence[Sequence[Ask]], within: float, is_urgent: bool = False
    ) -> list[Rows] | Fault:
        """Requests that leave together; what the last statement of each has told."""
        asks = [ask for asks in requests for ask in asks]
        answer = await self._ask(asks, within=within, is_urgent=is_urgent)
        if isinstance(answer, Fault):
            return answer
        ends = itertools.accumulate(len(asks) for asks in requests)
        return [answer[end - 1] for end in ends]

    def _fault(self, refusal: Refusal) -> Fault:
        return self._link.dialect.refused(refusal)

    async def _end_session(self, session: int, birth: str = "", within: float = math.inf) -> Fault | None:
        """Until it is gone: the server only has it told to end."""
        ends = self._link.now() + min(within, self._link.timeout)
        asks, is_told = self._scripts.end_session(session, birth), False
        while (left := ends - self._link.now()) > 0.0:
            answer = await self._ask(asks, within=left)
            if isinstance(answer, Fault):
                return answer
            if is_told and not answer[-1].rows:
                return None
            if is_told:
                await self._link.pause(LOOK_PAUSE)
            asks, is_told = self._scripts.has_session(session, birth), True
        return Fault(StoreUnavailable(f"{self._link.dialect.where}: session {session} did not end in time"))

    def _sweeping(self) -> list[Ask]:
        """Forgets what nobody has used for long."""
        raise NotImplementedError

    async def _sweep_now_and_then(self) -> None:
        """After a release. The work follows the rate at which names are made and used, not their number."""
        self._releases_left -= 1
        if self._releases_left != 0 and self._link.now() < self._sweeps_at:
            return
        self._sweeps_at = self._link.now() + SWEEP_PACE
        answer = await self._ask(self._sweeping())
        row = None if isinstance(answer, Fault) else protocol.only(answer)
        has_more = row is not None and protocol.number(row[0]) >= SWEEP_MOST
        self._releases_left = SWEEP_AFTER if has_more else 0

    def stop_waiting(self) -> None:
        self._link.shut()
        self._lines.wake_all()

    async def close(self) -> None:
        await self._link.close()


def _may_ask_again(answer: Answer | Fault, may_repeat: bool, tried: int) -> bool:
    """A server that takes no writes has done nothing, and its connection is closed: the next may reach the primary."""
    if isinstance(answer, Fault):
        return answer.was_idle and may_repeat
    return isinstance(answer, Refusal) and (answer.kind == "retry" or (answer.kind == "read_only" and not tried))


def no_answer(fault: Fault) -> Unreachable:
    """To a claim: raised if asking again will not help."""
    if fault.kind == "unstorable":
        raise ConfigurationError(str(fault.error))
    if fault.is_permanent:
        raise to_raise(fault.error)
    return unreachable(fault.error, fault.was_sent, fault.was_refused)


def _card_of_this_process(label: str | None) -> str:
    return protocol.write_card(label, machine.hostname(), os.getpid())
