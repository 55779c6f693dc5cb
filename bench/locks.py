"""What the contestants have in common: blocking locks of any make, by URL and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import gripfast


class Lock(Protocol):
    """The least that every library's lock can do; `acquire()` waits for ever."""

    def acquire(self) -> object: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


Locks = Callable[[str], AbstractContextManager[Callable[[str], Lock]]]
"""Connects to a URL, and gives a function from a name to its lock. A plain function: it is sent to processes."""


@dataclass(frozen=True)
class Make:
    """A library whose locks are measured."""

    name: str
    locks: Locks
    needs: tuple[str, ...] = ()


@contextmanager
def gripfast_locks(url: str) -> Iterator[Callable[[str], Lock]]:
    with gripfast.connect(url) as client:
        yield client.lock
