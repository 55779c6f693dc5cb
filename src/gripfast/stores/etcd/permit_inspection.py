"""What others see of semaphores and read/write locks, and do about them."""

from __future__ import annotations

from gripfast.core.ports import RW_LIMIT, Kind, PermitInfo, PermitPage, Unreachable
from gripfast.machine import boottime
from gripfast.stores.etcd import permit_protocol, protocol
from gripfast.stores.etcd.inspection import Inspection
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.permit_protocol import Permit, View
from gripfast.stores.etcd.permits import EtcdPermits
from gripfast.stores.etcd.requests import failed
from gripfast.stores.faults import Fault


class PermitInspection:
    def __init__(self, permits: EtcdPermits, inspection: Inspection) -> None:
        self._permits = permits
        self._inspection = inspection
        self._requests = permits.requests

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        until = self._requests.until()
        if (refused := await self._requests.meet(until, writes=False)) is not None:
            return refused
        return await self._inspect(name, kind, until)

    async def _inspect(self, name: str, kind: Kind, until: float) -> PermitInfo | Unreachable | None:
        view = await self._permits.look(self._permits.pool(name, kind), until)
        if isinstance(view, Unreachable):
            return view
        holders = sorted(view.holders, key=lambda each: each.entry.token)
        left = await self._inspection.seconds_left([each.entry.kv for each in holders], until)
        shown = tuple(
            permit_protocol.permit_holder(each, protocol.info(name, each.entry, 0, left[each.entry.kv.lease]))
            for each in holders
            if left[each.entry.kv.lease] != 0.0
        )
        limit = RW_LIMIT if kind == "rwlock" else view.limit or sum(each.n for each in holders)
        return PermitInfo(name, kind, limit, shown, len(view.queue) - len(holders)) if shown else None

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        until = self._requests.until()
        if (refused := await self._requests.meet(until, writes=False)) is not None:
            return refused
        found = await self._inspection.names(prefix, after, until, kind)
        if isinstance(found, Fault | Refusal):
            return failed(found)
        names, last = found
        infos: list[PermitInfo] = []
        for name in names:
            info = await self._inspect(name, kind, self._requests.until())
            if isinstance(info, Unreachable):
                return info
            infos += [] if info is None else [info]
        return PermitPage(infos, last)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None
    ) -> bool | Unreachable:
        until = self._requests.until()
        if (refused := await self._requests.meet(until, writes=False)) is not None:
            return refused
        removed: set[str] = set()
        while boottime() < until:
            view = await self._permits.look(self._permits.pool(name, kind), until)
            if isinstance(view, Unreachable):
                return view
            chosen = _chosen(view, owner, slot)
            if not chosen:
                break
            for each in chosen:
                done = await self._inspection.remove(name, each.entry, note, until)
                if isinstance(done, Unreachable):
                    return done
                removed |= {each.entry.owner} if done else set()
            if all(each.entry.owner in removed for each in chosen):
                break  # who came since then is none of those that were meant
        return bool(removed)


def _chosen(view: View, owner: str | None, slot: int | None) -> list[Permit]:
    return [
        each
        for each in view.holders
        if (owner is None or each.entry.owner == owner) and (slot is None or slot in each.slots)
    ]
