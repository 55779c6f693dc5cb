"""What a store has besides, if its locks live in sessions: see `core.ports.PermitStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gripfast.core.ports import Hold, Kind, PermitInfo, PermitPage, Unreachable
from gripfast.errors import Reason

if TYPE_CHECKING:
    from gripfast.stores.sql.rw_sessions import RWSessions


class PermitSessions:
    def rw(self) -> RWSessions:
        raise NotImplementedError

    async def downgrade(self, hold: Hold, n: int) -> Reason | Unreachable | None:
        return await self.rw().downgrade(hold)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        raise NotImplementedError("there are no semaphores")

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await self.rw().inspect(name)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await self.rw().page(prefix, after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await self.rw().force_release(name, owner)
