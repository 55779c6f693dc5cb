"""Gripfast's semaphores and read/write locks, by URL and name, in the shape in which locks are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import gripfast
from bench.locks import Lock, Make, gripfast_locks

LIMIT = 3


@contextmanager
def semaphores(url: str) -> Iterator[Callable[[str], Lock]]:
    with gripfast.connect(url) as client:
        yield lambda name: client.semaphore(name, LIMIT)


@contextmanager
def readers(url: str) -> Iterator[Callable[[str], Lock]]:
    with gripfast.connect(url) as client:
        yield lambda name: client.rwlock(name).read()


@contextmanager
def writers(url: str) -> Iterator[Callable[[str], Lock]]:
    with gripfast.connect(url) as client:
        yield lambda name: client.rwlock(name).write()


def lock(*needs: str) -> Make:
    return Make("gripfast lock", gripfast_locks, needs)


def semaphore(*needs: str) -> Make:
    return Make("gripfast semaphore", semaphores, needs)


def read_lock(*needs: str) -> Make:
    return Make("gripfast read lock", readers, needs)


def write_lock(*needs: str) -> Make:
    return Make("gripfast write lock", writers, needs)


def can(url: str, what: Literal["semaphores", "rwlocks"]) -> bool:
    """Whether the store at such a URL has them; also if its client library is not installed. Does no I/O."""
    try:
        with gripfast.connect(url) as client:
            return bool(getattr(client.capabilities, what, False))  # an older tree does not know of them
    except gripfast.ConfigurationError:
        return False
