"""What a store passes on to the parts that know of permits, where these are loaded when the first is used (ZooKeeper,
etcd)."""

from __future__ import annotations

from typing import Protocol

from gripfast.core.ports import Hold, Kind, Loss, PermitInfo, PermitPage, Unreachable


class Permits(Protocol):
    async def downgrade(self, hold: Hold) -> Loss | Unreachable | None: ...

    async def resize(self, name: str, limit: int) -> Unreachable | None: ...


class PermitInspection(Protocol):
    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None: ...

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable: ...

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None
    ) -> bool | Unreachable: ...


class WithPermits:
    """A `PermitStore` (`core/ports.py`), by way of the two."""

    @property
    def _permits(self) -> Permits:
        raise NotImplementedError

    @property
    def _permit_inspection(self) -> PermitInspection:
        raise NotImplementedError

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        return await self._permits.downgrade(hold)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return await self._permits.resize(name, limit)

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await self._permit_inspection.inspect_permits(name, kind)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await self._permit_inspection.page_permits(kind, prefix, after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await self._permit_inspection.force_release_permits(name, kind, owner, slot, note)
