"""A connection of the blocking driver: packed commands out, replies in, one after the other.

A request ends at its deadline, whatever happens: signals restart a receive time-out of the kernel, under gevent it is
none, and a server that sends a byte now and then never lets one end. So the socket itself never blocks, and whoever
waits for it does so until a moment. In nearly all cases that is one `send`, one `poll` and one `recv`.
"""

from __future__ import annotations

import math
import select
import socket
import sys
from collections.abc import Callable
from typing import Any

from hiredis import Reader, ReplyError

from gripfast.interrupts.graves import Grave
from gripfast.machine import boottime

CHUNK = 16384


class Wire:
    """Whoever has it has it alone, and after an interrupt nobody takes it again."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self.is_busy = False
        """An interrupt has left `hear` in the middle: what comes next can't be told from what was lost."""
        self.is_sent = False
        """The last command left completely, so that another one may follow it."""
        self.has_answered = False
        self.taught: set[object] = set()
        """The scripts of releases that were sent on it, in full."""
        self.sock = sock
        self._timeout = timeout
        self._grave = Grave.dig(self, sock)
        self.reader: Any = Reader()  # its stubs do not know that it takes a bytearray
        self._send: Callable[[bytes], int] = sock.send
        self._buffer = bytearray(CHUNK)
        self._receive: Callable[[bytearray], int] = sock.recv_into
        self._poll: Callable[[float], Any] | None = _poll_of(sock)
        """None where the socket has to wait by itself: what can be read of TLS may be in its buffers already, and the
        sockets of gevent and its like let others run meanwhile."""
        sock.settimeout(timeout if self._poll is None else 0.0)

    def ask(self, packed: bytes, within: float = math.inf) -> Any:
        """`within`: seconds, if that is less than the time-out. Raises OSError; TimeoutError, or BlockingIOError, if
        there was no reply in time."""
        seconds = self._timeout if within > self._timeout else within
        until = boottime() + seconds
        self.is_sent = False
        poll = self._poll
        if poll is None:
            self.sock.settimeout(seconds)
        sent = self._send(packed)
        if sent != len(packed):
            self._send_rest(packed[sent:], until)
            seconds = max(0.0, until - boottime())
        self.is_sent = True
        reader, buffer = self.reader, self._buffer
        if poll is not None and not poll(seconds * 1000):
            raise TimeoutError
        reader.feed(buffer, 0, self._receive(buffer) or _closed())
        reply = reader.gets()
        while reply is False:
            self._read_on(until)
            reply = reader.gets()
        self.has_answered = True
        return reply

    def send(self, packed: bytes) -> None:
        """Nobody waits for the reply: it comes before that of what is asked next, or `late` reads it."""
        until = boottime() + self._timeout
        self.is_sent = False
        if self._poll is None:
            self.sock.settimeout(self._timeout)
        sent = self._send(packed)
        if sent != len(packed):
            self._send_rest(packed[sent:], until)
        self.is_sent = True

    def late(self, seconds: float) -> Any:
        """The next reply to what was only sent; None if there was none in time. Raises OSError."""
        reply = self.hear(seconds)
        self._rest()
        return reply

    def ask_many(self, packed: bytes, count: int, within: float = math.inf) -> list[Any]:
        """The replies to a pipeline of `count` commands."""
        until = boottime() + min(within, self._timeout)
        replies = [self.ask(packed, within)]
        self._read_rest(replies, count, until)
        return replies

    def ask_stranger(self, packed: bytes, count: int) -> list[Any]:
        """As `ask_many`, of a server that may refuse the connection: by an error, which is its only reply then."""
        until = boottime() + self._timeout
        replies = [self.ask(packed)]
        try:
            self._read_rest(replies, count, until)
        except ConnectionError:
            if not isinstance(replies[0], ReplyError):
                raise
            replies += replies[:1] * (count - len(replies))
        return replies

    def _read_rest(self, replies: list[Any], count: int, until: float) -> None:
        while len(replies) < count:
            reply = self.reader.gets()
            if reply is False:
                self._read_on(until)
            else:
                replies.append(reply)

    def _send_rest(self, packed: bytes, until: float) -> None:
        """It is too much for the system to take at once."""
        self.sock.settimeout(_left(until))
        self.sock.sendall(packed)
        self._rest()

    def _read_on(self, until: float) -> None:
        """A reply that came in pieces, or later than those before it, as that to WAIT does."""
        if self._poll is None:
            self.sock.settimeout(_left(until))
        elif not self._poll(_left(until) * 1000):
            raise TimeoutError
        self.reader.feed(self._buffer, 0, self._receive(self._buffer) or _closed())

    def _rest(self) -> None:
        if self._poll is not None:
            self.sock.settimeout(0.0)

    def follow(self, packed: bytes) -> bool:
        """Send this behind what an interrupted or impatient request has sent. True if it left."""
        if not self.is_sent:
            return False
        self.is_sent = False  # if a part of it leaves, nothing can follow
        try:
            self.is_sent = self._send(packed) == len(packed)
        except OSError:
            pass
        return self.is_sent

    def hear(self, seconds: float) -> Any:
        """The next message of a subscription; None if there was none in time. Raises OSError."""
        message = self.reader.gets()
        if message is False:
            self.sock.settimeout(max(0.0, seconds))
            try:
                self.is_busy = True
                self.reader.feed(self._buffer, 0, self._receive(self._buffer) or _closed())
            except OSError as error:
                if not would_block(error):
                    raise
            self.is_busy = False
            message = self.reader.gets()
        return None if message is False else message

    def hang_up(self) -> None:
        """From another thread: whoever is listening is told of the end."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()
        self._grave.fill()


def _left(until: float) -> float:
    """Never 0, which means another thing to a socket: what has arrived is read even if this process was paused."""
    return max(0.001, until - boottime())


def would_block(error: OSError) -> bool:
    """It can't be read or written now. TLS says so by errors of its own; who uses it has loaded all of it."""
    tls = vars(sys.modules["ssl"]) if "ssl" in sys.modules else {}
    own = [tls[name] for name in ("SSLWantReadError", "SSLWantWriteError") if name in tls]
    return isinstance(error, (BlockingIOError, InterruptedError, TimeoutError, *own))


def _closed() -> int:
    raise ConnectionResetError


def _poll_of(sock: socket.socket) -> Callable[[float], Any] | None:
    """A time-out of the socket module costs a call more, before every send."""
    if type(sock).__module__ != "socket" or not hasattr(select, "poll"):
        return None
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLIN)
    return poller.poll
