"""One connection to each node, lent together to one thread at a time.

What was asked on a connection is remembered in order until it is answered (`due`), so that whoever borrows it next can
tell old replies from new ones. Nobody has to wait for a reply before he gives a bundle back.
"""

from __future__ import annotations

import select
import ssl
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hiredis import HiredisError, ProtocolError

from gripfast.core.redlock.nodes import Request
from gripfast.stores.redis.wire import CHUNK, Wire

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Due(NamedTuple):
    """What a connection has carried, and has not been answered yet."""

    replies: int
    """How many are to come."""
    sent_at: float
    asker: object
    """Who wants to know; afterwards nobody does."""
    request: Request
    owners: tuple[str, ...]
    """Who may have something at the node by it."""


class Strand:
    """The connection of a bundle to one node."""

    __slots__ = ("_buffer", "_feed", "_gets", "_is_tls", "_receive", "_replies", "_send", "_timeout", "due", "era",
                 "fd", "has_answered", "looks", "node", "sock", "wire")  # fmt: skip

    def __init__(self, wire: Wire, node: int, era: object, timeout: float) -> None:
        self.wire = wire
        self.node = node
        self.era = era
        """Older than the node's own: the node was given up for lost since it was made."""
        self.due: deque[Due] = deque()
        self.has_answered = False
        self.looks = 0
        """Of those who want to close it."""
        self.sock = wire.sock
        self.sock.setblocking(False)
        self.fd = self.sock.fileno()
        self._timeout = timeout
        self._send: Callable[[bytes], int] = self.sock.send
        self._receive = self.sock.recv_into
        self._feed, self._gets = wire.reader.feed, wire.reader.gets
        self._is_tls = isinstance(self.sock, ssl.SSLSocket)
        self._buffer = bytearray(CHUNK)
        self._replies: list[Any] = []

    def read(self) -> tuple[Due, list[Any]] | None:
        """What is there; then as `next`. Raises OSError; one of WOULD_BLOCK if there is nothing."""
        buffer = self._buffer
        self._feed(buffer, 0, self._receive(buffer) or _closed())
        while self._is_tls and self.sock.pending():  # type: ignore[attr-defined]
            self._feed(buffer, 0, self._receive(buffer) or _closed())
        return self.next()

    def next(self) -> tuple[Due, list[Any]] | None:
        """The next request whose replies have all been read, and those. Raises HiredisError."""
        reply = self._gets()
        if reply is False:
            return None
        due, replies = self.due, self._replies
        while due:
            replies.append(reply)
            if len(replies) == due[0].replies:
                self.has_answered = True
                self._replies = []
                return due.popleft(), replies
            reply = self._gets()
            if reply is False:
                return None
        raise ProtocolError("received a reply without a request")

    def send(self, packed: bytes) -> bool:
        """All of it; False if the node does not read what it was sent before. Raises OSError if it has hung up."""
        try:
            sent = self._send(packed)
        except WOULD_BLOCK:
            sent = 0
        if sent == len(packed):
            return True
        is_sent = len(packed) > CHUNK and self._send_rest(packed[sent:])
        if not is_sent and (sent or self._is_tls):
            self._send = _stuck  # what follows would be taken for the rest of this
        return is_sent

    def _send_rest(self, packed: bytes) -> bool:
        """It is too much for the system to take at once, but not for the node."""
        self.sock.settimeout(self._timeout)
        try:
            self.sock.sendall(packed)
        except TimeoutError:
            self._send = _stuck
            return False
        self.sock.setblocking(False)
        return True

    def send_after(self, packed: bytes, due: Due) -> bool:
        """Let this follow. True if it left."""
        self.due.append(due)
        try:
            return self.send(packed)
        except OSError:
            return False

    def is_over(self) -> bool:
        """Everything was answered that nobody waits for, or nothing will be."""
        try:
            self.read()
            while self.next() is not None:
                pass
        except WOULD_BLOCK:
            pass
        except (OSError, HiredisError):
            return True
        return not self.due

    def owes(self, owner: str) -> bool:
        """From any thread: one of this owner's requests that may set something is not answered here."""
        return any(owner in due.owners for due in list(self.due))

    def close(self) -> None:
        self.wire.close()


def _closed() -> int:
    raise ConnectionResetError


def _stuck(packed: bytes) -> int:
    raise BlockingIOError


class Bundle:
    """`strands` has None where there is no connection."""

    def __init__(self, nodes: int) -> None:
        self.strands: list[Strand | None] = [None] * nodes
        self.gaps = nodes
        self.by_fd: dict[int, Strand] = {}
        self.poller = new_poller()
        self.version: object = None
        """Of what is known about the nodes, when this was last looked through."""
        self.user: str | None = None
        """The owner for whom it is lent."""
        self.after: deque[tuple[Strand, str, Request]] = deque()
        """Clean-ups of owners for its connections, put here by others while it was lent."""
        self.is_dismissed = False
        """It will not be lent again."""

    def put(self, strand: Strand) -> None:
        self.strands[strand.node] = strand
        self.by_fd[strand.fd] = strand
        self.poller.register(strand.fd, READABLE)
        self.gaps = self.strands.count(None)

    def take_out(self, strand: Strand) -> None:
        self.strands[strand.node] = None
        self.gaps = self.strands.count(None)
        self.by_fd.pop(strand.fd, None)
        try:
            self.poller.unregister(strand.fd)
        except KeyError:  # an interrupt came before it was registered
            pass

    def owes(self, owner: str) -> bool:
        return bool(self.debtors(owner))

    def debtors(self, owner: str) -> list[Strand]:
        """The connections on which it does."""
        return [strand for strand in list(self.strands) if strand is not None and strand.owes(owner)]


class Loan:
    """The right to use a bundle: in the pool, or in the hands of one who asks. If it dies elsewhere, it was dropped."""

    __slots__ = ("__weakref__", "bundle")

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle


class Dropped(weakref.ref[Loan]):
    """What remains of a loan that an interrupt has dropped: the interpreter puts it on a queue, in C."""

    __slots__ = ("bundle",)

    bundle: Bundle


# Who is readable ------------------------------------------------------------------------------------------------------


class Poller(Protocol):
    def register(self, fd: int, events: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def poll(self, milliseconds: float, /) -> list[tuple[int, int]]: ...


class _Select:
    """Where the system has no poll."""

    def __init__(self) -> None:
        self._fds: set[int] = set()

    def register(self, fd: int, events: int) -> None:
        self._fds.add(fd)

    def unregister(self, fd: int) -> None:
        self._fds.discard(fd)

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        readable, _, _ = select.select(self._fds, (), (), milliseconds / 1000)
        return [(fd, 0) for fd in readable]


READABLE = getattr(select, "POLLIN", 0)


def new_poller() -> Poller:
    return select.poll() if hasattr(select, "poll") else _Select()
