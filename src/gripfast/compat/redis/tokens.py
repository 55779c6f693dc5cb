"""`acquire(token=…)`: the lock's key gets the value that the caller chose, so that others can release it by that.

Gripfast's requests are recognised by their owner id, which must be new for every attempt. A caller's token need not be:
two callers with the same one would both be told "yours". So the lock is acquired under an id of its own, and then its
holder changes its name on the server. In the books it has a unique id before and after. While the change is under way
both are in the ledger: whatever happens, both are released.
"""

from __future__ import annotations

from typing import Any

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.lease import Lease

# Its reply may be lost and it may be sent again: then the new name is there already.
SCRIPT = """
local holder = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if holder == ARGV[1] and left > 0 then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', left)
elseif holder ~= ARGV[2] then
  return 0
end
return 1
"""


class Alias(str):
    """An owner id, unique as all are, that is sent to the server as the caller's token."""

    token: bytes

    def __new__(cls, owner: str, token: bytes) -> Alias:
        alias = super().__new__(cls, f"{owner}, renamed")
        alias.token = token
        return alias

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.token


class Renaming:
    """Of a lease that nobody else has yet and that is not renewed."""

    def __init__(self, lease: Lease | AsyncLease, token: bytes) -> None:
        self._state = lease._state
        self._ledger = lease._runtime.env.ledger
        self._old, self._new = lease.owner, Alias(lease.owner, token)

    def command(self) -> tuple[Any, ...]:
        """Arguments for redis-py's eval(), to be sent once this has returned."""
        state = self._state
        self._ledger.rename(state, self._new)
        self._ledger.date(self._new, state.deadline, state.ttl)
        return SCRIPT, 1, state.name, self._old, self._new.token

    def done(self, renews: bool) -> None:
        self._ledger.confirm_gone(self._old)
        self._state.renews = renews

    def failed(self) -> None:
        """The old name first: if the server knows it no longer, it knows the new one by the time that is asked for."""
        self._state.finish("released")
        for owner in (self._old, self._new):
            self._state.owner = owner
            self._ledger.abandon(self._state)
