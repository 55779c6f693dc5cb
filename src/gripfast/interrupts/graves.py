"""Sockets of connections that nobody closed: an interrupt or a dropped client has left them behind.

A socket is closed as soon as its connection is dropped: the server then frees what it held. All of it is done by
functions written in C, so no interrupt can be raised in the middle of it, where nobody would learn of it. The reference
to the socket keeps the garbage collector from seeing it, and warning, before.
"""

from __future__ import annotations

import _socket
import functools
import operator
import os
import weakref
from collections.abc import Callable
from typing import Any


class Grave(weakref.ref[object]):
    __slots__ = ("close",)

    close: Callable[[], None]

    @classmethod
    def dig(cls, connection: object, sock: Any) -> Grave:
        for dead in [grave for grave in list(_graves) if grave() is None]:
            dead.fill()
        grave = cls(connection, operator.methodcaller("close"))
        found = plain(sock)
        is_real = isinstance(found, _socket.socket)  # a connection class of the caller's may have something else
        grave.close = functools.partial(_socket.socket.close, found) if is_real else found.close
        _graves.add(grave)
        return grave

    def fill(self) -> None:
        """The connection was closed."""
        _graves.discard(self)


def plain(sock: Any) -> _socket.socket:
    """What the interpreter knows as a socket; where gevent has put its own in place of those, it is inside."""
    found: _socket.socket = getattr(sock, "_sock", sock)
    return found


_graves: set[Grave] = set()


def _close_inherited() -> None:
    """In a forked child: connections are the parent's; let go of them without a word to the server."""
    for grave in list(_graves):
        try:
            grave.close()
        except Exception:  # of somebody else's socket: the others are closed all the same
            pass
    _graves.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
