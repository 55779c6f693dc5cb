"""What a server of a group really did: as `observer`, and whether it grants anything in its grace.

The books about grace are kept without the scripts' marker: from what the server is, and when it was first asked about
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gripfast.stores.redis import scripts
from gripfast_lab.sim.history import GRACE
from gripfast_lab.sim.redis.observer import _CALLS, Observer
from gripfast_lab.sim.redis.replication import ReplicatedServer

Incarnation = tuple[bytes, bytes]

_MARK = (scripts.MARK.sha.encode(), scripts.MARK.text.encode())
_ROUNDING_US = 1000
"""The scripts count in milliseconds."""


class GroupObserver(Observer):
    """`grace`: seconds; 0: there is none. `true_at`: when the server's clock will show so many seconds."""

    _server: ReplicatedServer

    def __init__(
        self, now: Callable[[], float], note: Callable[..., None], grace: float, true_at: Callable[[float], float]
    ) -> None:
        super().__init__(now, note)
        self.grace = grace
        self._true_at = true_at
        self._guard: list[bytes] = []
        """Which incarnation the request at hand is for."""
        self._over_us: dict[Incarnation, float] = {}

    def establish(self) -> None:
        """An operator says that it has no predecessor."""
        self._over_us[self._incarnation()] = 0.0

    def _incarnation(self) -> Incarnation:
        return self._server.run_id, self._server.replid

    def _before(self, session: object, args: list[bytes]) -> None:
        super()._before(session, args)
        self._guard = args[-2:]
        is_asked = args[0] in _CALLS and args[1] in _MARK
        if self.grace and is_asked and not self._server.is_replica and self._incarnation() not in self._over_us:
            over_us = self._server.database.now_us() + self.grace * 1e6
            self._over_us[self._incarnation()] = over_us
            self._note(self._server.name, "*", "fault", until=self._true_at(over_us / 1e6), note=GRACE)

    @property
    def is_in_grace(self) -> bool:
        over_us = self._over_us.get(self._incarnation())
        return bool(self.grace) and (over_us is None or self._server.database.now_us() < over_us - _ROUNDING_US)

    def _is_known(self) -> bool:
        run_id, replid = self._incarnation()
        return self._guard == [b"run_id:" + run_id, b"master_replid:" + replid]

    def _tell(self, kind: str, key: bytes, owner: bytes, **more: Any) -> None:
        if kind == "idle" and (self.is_in_grace or (self.grace and not self._is_known())):
            return  # nothing is handed over by one who does not know that this server may
        super()._tell(kind, key, owner, **more)
        if self.is_in_grace and kind == "handed":
            over_us = self._over_us.get(self._incarnation(), 0.0)
            super()._tell("hasty", key, owner, until=self._true_at(over_us / 1e6))
