"""What every store does when its client is closed: no claim gets in, and one that was under way gets nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gripfast.core.ports import Abandoned, Claim, Hold, for_each, to_raise
from gripfast.errors import ConfigurationError, Reason


class Shutting:
    _is_shut = False

    async def abandon(self, holds: Sequence[Hold]) -> Abandoned:
        raise NotImplementedError

    def forget(self, owner: str) -> None:
        """Most keep nothing."""

    def look(self) -> Sequence[tuple[str, Reason]]:
        """Most have no sessions."""
        return ()

    def _check_open(self) -> None:
        if self._is_shut:
            raise ConfigurationError("this client is closed")

    async def _undo(self, claim: Claim) -> None:
        """Closed while it was asked: nobody would renew or give back what it may have got. That the client is closed is
        why, also where giving back has failed, perhaps for the same reason."""
        answer = await self.abandon([Hold(claim.name, claim.owner, claim.ttl)])
        self._check_open()
        for trouble in for_each(answer, 1):
            if trouble is not None:
                raise to_raise(trouble.error)
