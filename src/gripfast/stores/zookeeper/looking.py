"""What can be seen of the locks of an ensemble, and done about them from outside; and how answers are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.exceptions import ConnectionLoss, NoNodeError

from gripfast.core.ports import Inbox, LockInfo, Page, Store, Unreachable, to_raise, unreachable
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.session import Session

PAGE = 100

Call = Callable[[], Any]
"""Begins a request; what it returns is told when it is answered."""


class Link(Protocol):
    """How answers are awaited, in one colour."""

    where: str
    timeout: float
    now: Callable[[], float]

    def inbox(self) -> Inbox: ...

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        """Whether there is a connection, once there is one or it is too late; with `or_refused` also once all servers
        have refused."""
        ...

    async def ask(self, calls: Sequence[Call], until: float) -> list[Any]:
        """The answer to each, or the exception it ended with; TimeoutError if there was none. They leave in order."""
        ...


class Looking(Store):
    def __init__(self, link: Link, sessions: Callable[[float], Session], root: str) -> None:
        self._link = link
        self._sessions = sessions
        self._root = root

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        until = self._link.now() + self._link.timeout
        session = await self._any_session(until)
        if isinstance(session, Unreachable):
            return session
        parent = self._parent(name)
        (synced,) = await self._surely(session, [functools.partial(session.client.sync_async, parent)], until)
        if isinstance(synced, BaseException) and not isinstance(synced, NoNodeError):
            return self._unreachable(synced)
        line = await self._line(session, parent, until)
        if isinstance(line, BaseException):
            return self._unreachable(line)
        return await self._info(name, session, parent, line, until)

    async def _line(self, session: Session, parent: str, until: float) -> list[Contender] | BaseException:
        (found,) = await self._surely(session, [functools.partial(session.client.get_children_async, parent)], until)
        if isinstance(found, NoNodeError):
            return []
        return found if isinstance(found, BaseException) else protocol.in_order(found)

    async def _info(
        self, name: str, session: Session, parent: str, line: Sequence[Contender], until: float
    ) -> LockInfo | None:
        """Of the first in line; None if that has left meanwhile."""
        for place, first in enumerate(line):
            path = f"{parent}/{first.node}"
            (got,) = await self._ask(session, [functools.partial(session.client.get_async, path)], until)
            if not isinstance(got, BaseException):
                return protocol.lock_info(name, first.owner, got[0], got[1], len(line) - place - 1)
        return None

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        until = self._link.now() + self._link.timeout
        session = await self._any_session(until)
        if isinstance(session, Unreachable):
            return session
        names_there = functools.partial(session.client.get_children_async, self._root)
        (found,) = await self._surely(session, [names_there], until)
        if isinstance(found, NoNodeError):
            return Page([], None)
        if isinstance(found, BaseException):
            return self._unreachable(found)
        names = sorted(name for name in map(protocol.decoded, found) if name.startswith(prefix))
        names = [name for name in names if after is None or name > after][:PAGE]
        infos = await self._infos(session, names, until)
        return Page(infos, names[-1] if len(names) == PAGE else None)

    async def _infos(self, session: Session, names: Sequence[str], until: float) -> list[LockInfo]:
        client = session.client
        parents = [f"{self._root}/{protocol.encoded(name)}" for name in names]
        lines = await self._ask(
            session, [functools.partial(client.get_children_async, path) for path in parents], until
        )
        taken = [
            (name, path, line)
            for name, path, children in zip(names, parents, lines, strict=True)
            if not isinstance(children, BaseException) and (line := protocol.in_order(children))
        ]
        gets = [functools.partial(client.get_async, f"{path}/{line[0].node}") for _, path, line in taken]
        found = await self._ask(session, gets, until) if gets else []
        return [
            protocol.lock_info(name, line[0].owner, got[0], got[1], len(line) - 1)
            for (name, _, line), got in zip(taken, found, strict=True)
            if not isinstance(got, BaseException)
        ]

    async def force_release(self, name: str) -> bool | Unreachable:
        until = self._link.now() + self._link.timeout
        session = await self._any_session(until)
        if isinstance(session, Unreachable):
            return session
        parent = self._parent(name)
        line = await self._line(session, parent, until)
        if isinstance(line, BaseException):
            return self._unreachable(line)
        if not line:
            return False
        delete = functools.partial(session.client.delete_async, f"{parent}/{line[0].node}")
        (deleted,) = await self._ask(session, [delete], until)
        if isinstance(deleted, NoNodeError):
            return False
        return self._unreachable(deleted) if isinstance(deleted, BaseException) else True

    async def _surely(self, session: Session, calls: Sequence[Call], until: float) -> list[Any]:
        """Asked once more if the connection broke meanwhile: for what may be repeated."""
        answers = await self._ask(session, calls, until)
        was_lost = any(isinstance(answer, ConnectionLoss) for answer in answers)
        if was_lost and await self._link.connected(session, until):
            answers = await self._ask(session, calls, until)
        return answers

    async def _ask(self, session: Session, calls: Sequence[Call], until: float) -> list[Any]:
        sent = self._link.now()
        answers = await self._link.ask(calls, until)
        had_time = self._link.now() - sent >= self._link.timeout / 2
        if had_time and any(isinstance(answer, TimeoutError) for answer in answers):
            session.leave_if_silent(sent)
        return answers

    def _parent(self, name: str) -> str:
        return f"{self._root}/{protocol.encoded(name)}"

    async def _any_session(self, until: float) -> Session | Unreachable:
        session = self._sessions(0.0)
        if session.is_connected or await self._link.connected(session, until, or_refused=True):
            return session
        return self._not_connected(session)

    def _not_connected(self, session: Session) -> Unreachable:
        """Nothing was sent: all refused, or the time is over."""
        error = protocol.not_connected(self._link.where, session.troubles)
        return unreachable(error, was_sent=False, was_refused=True)

    def _unreachable(self, error: BaseException, may_raise: bool = False) -> Unreachable:
        fault = protocol.fault(self._link.where, error)
        if may_raise and protocol.is_permanent(error):
            raise to_raise(fault)
        return unreachable(fault)
