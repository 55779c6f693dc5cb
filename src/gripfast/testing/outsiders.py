"""Clients that a program has made before a World, such as one of a module, and that the test has not redirected.

Their locks are in the store of the program. So `hold()`, `lose()` and `outage()` do nothing to them, and a test that
counts on those passes whatever the code does. The first use of such a client while a World is active is a warning.
A client that is made while a World is active was made on purpose. So was one of memory: no server is behind it.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gripfast.api.base import AnyClient, clients
from gripfast.interrupts.living import Living

_PACKAGE = str(Path(__file__).parents[1])

WAY_IN = "_start"
"""The method of a client that each request comes through. `redirect()` makes it that of the class again."""

known: Living[AnyClient] = Living()
"""Those for which a warning was given, or none is needed."""


@contextmanager
def watched(former: AnyClient | None) -> Iterator[None]:
    """While the block runs, the first use of a client that exists already is a warning. `former`: the default one."""
    outside: Living[AnyClient] = Living()
    for client in clients:
        if client not in known and client._config.kind != "memory" and WAY_IN not in vars(client):
            outside.add(client)
            for owner, method in _ways_in(client):
                _watch(client, owner, method, _OF_DEFAULT if client is former else _OF_CLIENT)
    try:
        yield
    finally:
        for client in outside:
            _leave_alone(client)


def _leave_alone(client: AnyClient) -> None:
    for owner, method in _ways_in(client):
        vars(owner).pop(method, None)


def _ways_in(client: AnyClient) -> list[tuple[object, str]]:
    """A Client makes AsyncClients of its own for coroutine functions."""
    twins = getattr(client, "_twins", None)
    return [(client, WAY_IN)] + ([] if twins is None else [(twins, "here")])


def _watch(client: AnyClient, owner: object, method: str, what: str) -> None:
    """By an attribute that goes with the first call. It must not keep the client: one that is dropped ends."""
    weak_client, weak_owner = weakref.ref(client), weakref.ref(owner)

    def tell_and_go_on() -> Any:
        client, owner = weak_client(), weak_owner()
        assert client is not None
        _leave_alone(client)
        if client not in known:
            known.add(client)
            _tell(client, what)
        return getattr(owner, method)()

    vars(owner)[method] = tell_and_go_on


_OUTSIDE = "so {} not in it: hold(), lose() and outage() do nothing to {}. "
_OF_CLIENT = (
    "{client!r} was made before this World, "
    + _OUTSIDE.format("its locks are", "them")
    + "Call world.redirect(client) in the test, or in its fixture. For a lock that a module has made at import, "
    "world.redirect(lock) moves the client that made it"
)
_OF_DEFAULT = (
    "this lock of gripfast.lock(), on {client.where}, was made before this World, "
    + _OUTSIDE.format("it is", "it")
    + "Make it in the function that uses it, `with gripfast.lock(name):`, or call world.redirect(lock) in the test, or "
    "in its fixture"
)


def _tell(client: AnyClient, what: str) -> None:
    warnings.warn(what.format(client=client), stacklevel=_level_of_the_caller(sys._getframe()))


def _level_of_the_caller(frame: FrameType | None) -> int:
    """The first frame that is not of this package, counted as warn() does."""
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
