"""What others see of the locks of an ensemble, and do about them: inspect, list, force release."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, GetData, SetData, Sync

from gripfast.core.ports import LockInfo, Page, Unreachable
from gripfast.machine import boottime
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.meeting import meet
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.requests import Call, Link, failed, not_connected, retried
from gripfast.stores.zookeeper.session import Session, Sessions

PAGE = 100


class Inspection:
    def __init__(self, link: Link, sessions: Sessions, root: str) -> None:
        self._link = link
        self._sessions = sessions
        self._root = root

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        parent = protocol.parent(self._root, name)
        (synced,) = await retried(self._link, [(session, Sync(parent))], until)
        if isinstance(synced, BaseException) and not isinstance(synced, NoNodeError):
            return failed(session, synced)
        queue = await self._queue(session, parent, until)
        if isinstance(queue, BaseException):
            return failed(session, queue)
        for position, first in enumerate(queue):  # the next one if the first has left meanwhile
            (got,) = await self._link.request([(session, GetData(f"{parent}/{first.node}", None))], until)
            if not isinstance(got, BaseException):
                return protocol.lock_info(name, first.owner, got, len(queue) - position - 1)
        return None

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        (found,) = await retried(self._link, [(session, GetChildren(self._root, None))], until)
        if isinstance(found, NoNodeError):
            return Page([], None)
        if isinstance(found, BaseException):
            return failed(session, found)
        names = sorted(name for name in map(protocol.decoded, found) if name.startswith(prefix))
        names = [name for name in names if after is None or name > after][:PAGE]
        return Page(await self._infos(session, names, until), names[-1] if len(names) == PAGE else None)

    async def _infos(self, session: Session, names: Sequence[str], until: float) -> list[LockInfo]:
        parents = [protocol.parent(self._root, name) for name in names]
        found = (
            await self._link.request([(session, GetChildren(path, None)) for path in parents], until) if names else []
        )
        taken = [
            (name, path, queue)
            for name, path, children in zip(names, parents, found, strict=True)
            if not isinstance(children, BaseException) and (queue := protocol.in_order(children))
        ]
        gets = [(session, GetData(f"{path}/{queue[0].node}", None)) for _, path, queue in taken]
        return [
            protocol.lock_info(name, queue[0].owner, got, len(queue) - 1)
            for (name, _, queue), got in zip(taken, await self._link.request(gets, until) if gets else [], strict=True)
            if not isinstance(got, BaseException)
        ]

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        parent = protocol.parent(self._root, name)
        queue = await self._queue(session, parent, until)
        if isinstance(queue, BaseException):
            return failed(session, queue)
        if not queue:
            return False
        calls: list[Call] = [(session, Delete(f"{parent}/{queue[0].node}", -1))]
        if note is not None:
            calls = [*await self._note(session, parent, protocol.write_note(queue[0].owner, note), until), *calls]
        *_, deleted = await self._link.request(calls, until)
        if isinstance(deleted, NoNodeError):
            return False
        return failed(session, deleted) if isinstance(deleted, BaseException) else True

    async def _note(self, session: Session, parent: str, data: bytes, until: float) -> list[Call]:
        """Written before the holder's node is deleted, so that its owner finds it. The lock is released in any case:
        the node of a name that kazoo has made, or that this identity may not write, gets none."""
        (got,) = await self._link.request([(session, GetData(parent, None))], until)
        if isinstance(got, BaseException) or not protocol.is_marked(got[0]):
            return []
        return [(session, SetData(parent, data, got[1].version))]

    async def _ready(self, session: Session, until: float) -> Unreachable | None:
        """None if it is connected, and the layout is this version's, or there is none yet."""
        if not session.is_connected and not await self._link.connected(session, until, or_refused=True):
            return not_connected(session)
        return None if session.met == session.life else await meet(self._link, session, self._root, until, writes=False)

    async def _queue(self, session: Session, parent: str, until: float) -> list[Contender] | BaseException:
        (found,) = await retried(self._link, [(session, GetChildren(parent, None))], until)
        if isinstance(found, NoNodeError):
            return []
        return found if isinstance(found, BaseException) else protocol.in_order(found)
