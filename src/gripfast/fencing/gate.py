"""A gate in memory, for a service that is itself the resource: it lets a token in unless a larger one was seen.

Memory: a gate keeps one number and one mutex per resource for as long as it lives, about 300 bytes with the name. It
forgets none, because a forgotten resource would let its stale writers in. A service with an endless stream of resource
names keeps the tokens where it keeps the resources (`guard` on its database), where they go when the resource goes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gripfast.errors import StaleToken
from gripfast.fencing.checks import checked_resource, checked_token


class _Entry:
    """What is known of one resource. The mutex is re-entrant: a writer inside `writing` may call `guard`."""

    __slots__ = ("exclusive", "mutex", "resource", "seen")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.mutex = threading.RLock()
        self.seen = 0
        self.exclusive = 0
        """The largest that was not shared."""

    def admit(self, token: int, shared: bool = False) -> None:
        """Those who share a resource have different tokens at the same time: of them, none is late because of another.
        An exclusive holder makes all of them late, and is late itself when one of them came after it."""
        least = self.exclusive if shared else self.seen
        if token < least:
            raise StaleToken(self.resource, token, least)
        self.seen = max(self.seen, token)
        if not shared:
            self.exclusive = token


class Gate:
    """Remembers the largest token of each resource in memory, for a service that is itself the resource. Thread-safe;
    make one for the service. After a restart it is empty, and accepts the first token of each resource."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def guard(self, resource: str, token: int, *, shared: bool = False) -> None:
        """Raise StaleToken if the gate has seen a larger token for the resource; an equal one is the same holder again.

        The check is valid only at the moment of the call. That is enough if no other writer can come between guard and
        write: in one asyncio task without an await in between, or in one thread that does all writing. Otherwise write
        inside `writing`.

        `shared`: the holder shares the resource with others, as a reader of a read/write lock does. The token is stale
        only if the gate has seen a larger token that was not shared.
        """
        token, entry = checked_token(token), self._entry(resource)
        with entry.mutex:
            entry.admit(token, shared)

    @contextmanager
    def writing(self, resource: str, token: int, *, shared: bool = False) -> Iterator[None]:
        """A context manager: check the token as `guard` does, and keep other writers of the resource out until the
        block ends. For services with threads."""
        token, entry = checked_token(token), self._entry(resource)
        with entry.mutex:
            entry.admit(token, shared)
            yield

    def _entry(self, resource: str) -> _Entry:
        known = self._entries.get(resource)
        return known if known is not None else self._entries.setdefault(checked_resource(resource), _Entry(resource))
