"""Those who use semaphores and read/write locks: they ask with the limit that is in force when they ask."""

from __future__ import annotations

from collections.abc import Callable

from gripfast.core.lease import Share, Want
from gripfast_lab.sim.actors import Actor
from gripfast_lab.sim.permits import ANOTHER_LIMIT
from gripfast_lab.sim.plan import Errand


class PermitActor(Actor):
    limit_of: Callable[[str], int | None]
    _share: Share | None = None

    def _says(self, errand: Errand) -> str:
        share = errand.share
        limit = None if share is None else self.limit_of(errand.name)
        if share is not None and limit is not None:
            n = limit if share.n == share.limit else min(share.n, limit)
            share = share._replace(n=n, limit=limit)
        self._share = share
        return "" if share is None else f"{share.n} of {share.limit}"

    def _want(self, errand: Errand) -> Want:
        return super()._want(errand)._replace(share=self._share)

    def _misfit(self) -> None:
        self._note("refused", note=ANOTHER_LIMIT)
