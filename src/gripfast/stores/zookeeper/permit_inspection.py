"""What others see of semaphores and read/write locks, and do about them: inspect, list, force release."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, GetData, SetData, Sync

from gripfast.core.ports import Kind, PermitInfo, PermitPage, Unreachable
from gripfast.machine import boottime
from gripfast.stores.zookeeper import permit_protocol, protocol
from gripfast.stores.zookeeper.inspection import PAGE, Inspection
from gripfast.stores.zookeeper.permit_protocol import Permit
from gripfast.stores.zookeeper.requests import Call, failed, retried
from gripfast.stores.zookeeper.session import Session

CHUNK = 500
"""Holders that are requested together; others get their turn in between."""


class PermitInspection(Inspection):
    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        parent = permit_protocol.parent(self._root, kind, name)
        (synced,) = await retried(self._link, [(session, Sync(parent))], until)
        if isinstance(synced, BaseException) and not isinstance(synced, NoNodeError):
            return failed(session, synced)
        infos = await self._permit_infos(session, kind, [name], until)
        if isinstance(infos, BaseException):
            return failed(session, infos)
        return infos[0] if infos else None

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        above = permit_protocol.above(self._root, kind)
        (found,) = await retried(self._link, [(session, GetChildren(above, None))], until)
        if isinstance(found, NoNodeError):
            return PermitPage([], None)
        if isinstance(found, BaseException):
            return failed(session, found)
        names = sorted(name for name in map(protocol.decoded, found) if name.startswith(prefix))
        names = [name for name in names if after is None or name > after][:PAGE]
        infos = await self._permit_infos(session, kind, names, until)
        if isinstance(infos, BaseException):
            return failed(session, infos)
        return PermitPage(infos, names[-1] if len(names) == PAGE else None)

    async def _permit_infos(
        self, session: Session, kind: Kind, names: Sequence[str], until: float
    ) -> list[PermitInfo] | BaseException:
        """Of those that somebody holds."""
        parents = [permit_protocol.parent(self._root, kind, name) for name in names]
        looks: list[Call] = []
        for parent in parents:
            looks += [(session, GetData(parent, None)), (session, GetChildren(parent, None))]
        seen = await retried(self._link, looks, until) if looks else []
        infos = []
        for name, parent, got, children in zip(names, parents, seen[::2], seen[1::2], strict=True):
            if isinstance(got, NoNodeError) or isinstance(children, NoNodeError):
                continue
            for answer in (got, children):
                if isinstance(answer, BaseException):
                    return answer
            queue = permit_protocol.in_order(children)
            holding = permit_protocol.holders(queue, kind)
            found = await self._details(session, parent, holding, until)
            if isinstance(found, BaseException):
                return found
            shown = [
                permit_protocol.permit_holder(each, details)
                for each, details in zip(holding, found, strict=True)
                if not isinstance(details, NoNodeError)  # it has left meanwhile
            ]
            if shown:
                limit, waiters = permit_protocol.read_limit(got[0]), len(queue) - len(holding)
                shown.sort(key=lambda each: each.token)
                infos.append(PermitInfo(name, kind, limit, tuple(shown), waiters))
        return infos

    async def _details(
        self, session: Session, parent: str, holding: Sequence[Permit], until: float
    ) -> list[Any] | BaseException:
        found: list[Any] = []
        for start in range(0, len(holding), CHUNK):
            calls: list[Call] = [
                (session, GetData(f"{parent}/{each.node}", None)) for each in holding[start : start + CHUNK]
            ]
            found += await self._link.request(calls, until)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, NoNodeError):
                return each
        return found

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None
    ) -> bool | Unreachable:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if (refused := await self._ready(session, until)) is not None:
            return refused
        parent = permit_protocol.parent(self._root, kind, name)
        owners: set[str] | None = None
        is_removed = False
        while True:
            looks: list[Call] = [(session, GetData(parent, None)), (session, GetChildren(parent, None))]
            got, children = await retried(self._link, looks, until)
            if isinstance(got, NoNodeError) or isinstance(children, NoNodeError):
                return is_removed
            for answer in (got, children):
                if isinstance(answer, BaseException):
                    return failed(session, answer)
            holding = permit_protocol.holders(permit_protocol.in_order(children), kind)
            if owners is None:
                owners = {each.owner for each in holding if _is_meant(each, owner, slot)}
            meant = [each for each in holding if each.owner in owners]
            if not meant:
                return is_removed
            if note is not None and not await self._is_noted(session, parent, got, owners, note, until):
                continue
            deletes: list[Call] = [(session, Delete(f"{parent}/{each.node}", -1)) for each in meant]
            answers = await self._link.request(deletes, until)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                    return failed(session, answer)
            is_removed = is_removed or not all(map(_is_missing, answers))
            if not any(map(_is_missing, answers)):
                return is_removed
            # Whoever is missing has left, or is a reader by now.

    async def _is_noted(
        self, session: Session, parent: str, got: Any, owners: set[str], note: str, until: float
    ) -> bool:
        """Written before the holders' nodes are deleted, so that their owners find it. False if the name has changed
        meanwhile. If this identity may not write it, the holders are removed without it."""
        data = permit_protocol.with_notes(got[0], sorted(owners), note, time.time())
        (written,) = await self._link.request([(session, SetData(parent, data, got[1].version))], until)
        return not isinstance(written, BadVersionError)


def _is_meant(each: Permit, owner: str | None, slot: int | None) -> bool:
    return (owner is None or each.owner == owner) and (slot is None or slot in each.slots)


def _is_missing(answer: Any) -> bool:
    return isinstance(answer, NoNodeError)
