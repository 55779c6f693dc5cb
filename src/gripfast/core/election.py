"""Elections: who leads, what a watcher tells and when it looks again, and what a failed campaign means.

An election is a lock, and the value of its leader is the label of that lock. So a term has all that a lease has, and
stores know nothing of elections.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from gripfast.core import rules
from gripfast.core.ports import Env, LockInfo, Unreachable, to_raise
from gripfast.errors import ClientClosed, StoreUnavailable

_log = logging.getLogger("gripfast.election")


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, according to the engine."""

    value: str
    """What the leader says of itself: the `value` of its election."""
    token: int
    """The fencing token of its term: larger than the tokens of all earlier terms."""
    host: str
    pid: int
    since: datetime | None
    """None if another library holds the lock on the same Redis key. Then only `expires_in` is known."""
    expires_in: float
    """Seconds until the term ends if it is not renewed; infinite if it never expires."""


def leader_of(info: LockInfo | None) -> Leader | None:
    if info is None or info.kept is not None:
        return None
    return Leader(info.label or "", info.token, info.host, info.pid, info.since, info.expires_in)


class Watch:
    """One watcher: what it has told, and when it looks again.

    A term is told once. A token that is smaller than one that was told is of an earlier term, by an answer that came
    late or from a server that lags behind: it is not told. Holders that are no clients of ours have no tokens.
    """

    def __init__(self, key: str, ttl: float) -> None:
        self._key = key
        self._ttl = ttl
        self._looks_at = -math.inf
        self._told: list[tuple[int, str] | None] = []
        """The last one: a token and an owner, or None for nobody. Empty at first."""
        self._largest = 0

    async def next(self, env: Env, nap: Callable[[float], Awaitable[None]]) -> Leader | None:
        """The next leader that is another one than was told last. Raises ClientClosed when the client is closed, and
        StoreUnavailable as an acquire does that waits for ever; the next call goes on."""
        failures = 0
        silence_ends = env.now() + env.connect_patience
        while True:
            await nap(self._looks_at - env.now())
            if env.is_closed:
                raise ClientClosed
            answer = await env.store.inspect(self._key)
            now = env.now()
            if isinstance(answer, Unreachable):
                self._looks_at = now + rules.retry_pause(failures)
                failures += 1
                if answer.is_permanent or now >= silence_ends or isinstance(answer.error, ClientClosed):
                    raise to_raise(answer.error)
                continue
            failures, silence_ends = 0, now + env.connect_patience
            self._looks_at = rules.look_again_at(now, self._ttl, None if answer is None else answer.expires_in)
            if self._is_news(answer):
                return leader_of(answer)

    def _is_news(self, info: LockInfo | None) -> bool:
        if info is not None and info.since is not None:
            if info.token < self._largest:
                return False
            self._largest = info.token
        seen = None if info is None or info.kept is not None else (info.token, info.owner)
        if self._told == [seen]:
            return False
        self._told = [seen]
        return True


class Campaign:
    """The candidate's side of an engine that does not answer: it is no leader, and goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures = 0
        self._said = ""

    def failed(self, error: StoreUnavailable) -> float:
        """How long to pause. The log has each error once."""
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        self._said = str(error)
        about = {"gripfast_name": self._name}
        _log.log(level, "can't campaign for %r (%s); will retry", self._name, self._said, extra=about)
        pause = rules.retry_pause(self._failures)
        self._failures += 1
        return pause
