"""`lock.local`: what the caller holds through one lock object, and the token by which redis-py knows it.

redis-py keeps one token per lock object (and thread). Here the token is read off the lease that release() would mean,
see `holdings`, so threads and tasks that share an object find their own. A token that is set by hand stands for a lock
that was acquired elsewhere: it is released and extended by that token alone.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.lease import Lease
from gripfast.compat.holdings import Hold, Holdings


class Borrowed:
    """A lock that was acquired elsewhere, known by its token."""

    def __init__(self, owner: str) -> None:
        self.owner = owner


Held = Lease | AsyncLease | Borrowed


class Local:
    """`token` is None while the caller holds nothing."""

    def __init__(self, who: Callable[[], object]) -> None:
        self._who = who
        self._holdings: Holdings[Held] = Holdings()

    @property
    def token(self) -> bytes | None:
        held = self._held()
        return None if held is None else as_token(held.owner)

    @token.setter
    def token(self, token: bytes | str | None) -> None:
        if token is None:
            self._take()
            return
        token = token.encode() if isinstance(token, str) else bytes(token)
        if token != self.token:
            self._keep(Borrowed(as_owner(token)))

    def _held(self) -> Held | None:
        """What release() would mean."""
        entry = self._holdings.pick(self._who())
        return None if entry is None else entry[1]

    def _room_for(self, held: Held, strongly: bool = True) -> tuple[Holdings[Held], Hold[Held]]:
        """Where to enter it, and what: `holdings[hold] = None`, in place of what the same caller had. See `holdings`.

        What was there is lost, or was let go by hand: a caller has one lock at a time through one object.
        """
        who, holdings = self._who(), self._holdings
        for old in [old for old in list(holdings) if old.who == who or _is_forsaken(old)]:
            holdings.pop(old, None)
        return holdings, Hold(who, held, strongly)

    def _keep(self, held: Held, strongly: bool = True) -> None:
        holdings, hold = self._room_for(held, strongly)
        holdings[hold] = None

    def _take(self) -> Held | None:
        return self._holdings.take(self._who())

    def _take_this(self, held: Held) -> bool:
        return self._holdings.take_this(held)


class ThreadLocal(threading.local, Local):
    """One for every thread. It goes when the thread goes, and its leases with it."""


def _is_forsaken(hold: Hold[Held]) -> bool:
    """Its task is gone, and so is its lease: nobody will come to release it."""
    return isinstance(hold.who, weakref.ref) and hold.who() is None and not getattr(hold.lease(), "held", True)


def as_token(owner: str) -> bytes:
    return owner.encode(errors="surrogateescape")


def as_owner(token: bytes) -> str:
    """A token may be any bytes."""
    return token.decode(errors="surrogateescape")


def is_shown_as(owner: str, shown: str) -> bool:
    """Whether this owner is the one that LockInfo tells of, where other bytes than UTF-8 are spelt out."""
    return as_token(owner).decode(errors="backslashreplace") == shown


def this_thread() -> int:
    return threading.get_ident()


def this_task() -> Any:
    """Weakly: a task that failed keeps its frames, and in them leases."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
    return None if task is None else weakref.ref(task)
