"""A connection in the blocking colour: packed commands out, replies in, one after the other."""

from __future__ import annotations

import os
import queue
import socket
import ssl
import struct
import sys
import weakref
from collections.abc import Callable
from typing import Any

from hiredis import Reader

CHUNK = 16384

_CAN_TIME_IN_KERNEL = sys.platform != "win32"


class Wire:
    """Whoever has it has it alone, and after an interrupt nobody takes it again."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self.is_busy = False
        """An interrupt has left `hear` in the middle: what comes next can't be told from what was lost."""
        self.is_sent = False
        """The last command left completely, so that another one may follow it."""
        self.has_answered = False
        self.sock = sock
        self._grave = _Grave.dig(self, sock)
        self.reader: Any = Reader()  # its stubs do not know that it takes a bytearray
        self._send: Callable[[bytes], None] = sock.sendall
        self._buffer = bytearray(CHUNK)
        self._receive: Callable[[bytearray], int] = sock.recv_into
        _set_timeout(sock, timeout)

    def ask(self, packed: bytes) -> Any:
        """Raises OSError; BlockingIOError or TimeoutError if there was no reply in time."""
        self.is_sent = False
        self._send(packed)
        self.is_sent = True
        reader, buffer = self.reader, self._buffer
        reader.feed(buffer, 0, self._receive(buffer) or _closed())
        reply = reader.gets()
        while reply is False:
            reader.feed(buffer, 0, self._receive(buffer) or _closed())
            reply = reader.gets()
        self.has_answered = True
        return reply

    def ask_many(self, packed: bytes, count: int) -> list[Any]:
        """The replies to a pipeline of `count` commands."""
        replies = [self.ask(packed)]
        while len(replies) < count:
            reply = self.reader.gets()
            if reply is False:
                self.reader.feed(self._buffer, 0, self._receive(self._buffer) or _closed())
            else:
                replies.append(reply)
        return replies

    def send_after(self, packed: bytes) -> bool:
        """Let this follow what an interrupted or impatient request has sent. True if it left."""
        if not self.is_sent:
            return False
        try:
            self._send(packed)
        except OSError:
            return False
        return True

    def hear(self, seconds: float) -> Any:
        """The next message of a subscription; None if there was none in time. Raises OSError."""
        message = self.reader.gets()
        if message is False:
            self.sock.settimeout(max(0.0, seconds))
            try:
                self.is_busy = True
                self.reader.feed(self._buffer, 0, self._receive(self._buffer) or _closed())
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                pass
            self.is_busy = False
            message = self.reader.gets()
        return None if message is False else message

    def hang_up(self) -> None:
        """From another thread: whoever is listening hears the end."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()
        self._grave.fill()


def _closed() -> int:
    raise ConnectionResetError


def _set_timeout(sock: socket.socket, seconds: float) -> None:
    """By the system, where it can: a time-out of the socket module costs a call before every other."""
    if isinstance(sock, ssl.SSLSocket) or not _CAN_TIME_IN_KERNEL:
        sock.settimeout(seconds)
        return
    sock.settimeout(None)
    whole = int(seconds)
    interval = struct.pack("@ll", whole, max(1, int((seconds - whole) * 1_000_000)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)


class _Grave(weakref.ref[Wire]):
    """Where the socket of a wire ends that an interrupt or a dropped client has left behind.

    When the wire dies, the interpreter puts this on a queue, in C; whoever opens or closes a connection next closes
    those of the dead.
    """

    __slots__ = ("sock",)

    sock: socket.socket

    @classmethod
    def dig(cls, wire: Wire, sock: socket.socket) -> _Grave:
        grave = cls(wire, _dead.put)
        grave.sock = sock
        _graves.add(grave)
        return grave

    def fill(self) -> None:
        _graves.discard(self)


_graves: set[_Grave] = set()
_dead: queue.SimpleQueue[_Grave] = queue.SimpleQueue()


def close_the_dead() -> None:
    while True:
        try:
            grave = _dead.get_nowait()
        except queue.Empty:
            return
        grave.sock.close()
        grave.fill()


def _close_inherited() -> None:
    """In a forked child: connections are the parent's; let go of them without a word to the server."""
    for grave in list(_graves):
        grave.sock.close()
    _graves.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
