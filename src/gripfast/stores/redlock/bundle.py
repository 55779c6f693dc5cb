"""One connection to each node, lent together to one thread at a time.

What was asked on a connection is remembered in order until it is answered (`due`), so that whoever borrows it next can
tell old replies from new ones. Nobody has to wait for a reply before he gives a bundle back.
"""

from __future__ import annotations

import select
import ssl
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from hiredis import HiredisError, ProtocolError

from gripfast.core.redlock.nodes import Request
from gripfast.interrupts.living import Living
from gripfast.stores.redis.conversation import Server
from gripfast.stores.redis.wire import CHUNK, Wire

if TYPE_CHECKING:
    from gripfast.stores.redlock.pool import Pool

T = TypeVar("T")

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Due(NamedTuple):
    """What a connection has carried, and has not been answered yet."""

    replies: int
    """How many are to come."""
    sent_at: float
    asker: object
    """Who wants to know; afterwards nobody does."""
    request: Request | bytes
    """Bytes: a clean-up that has followed."""
    owners: Sequence[str] = ()
    """Whose claims it has."""
    is_full: bool = False
    """The node can't answer that it has forgotten the script."""


class LentServer(Server):
    """A node whose connections are lent to threads. Each connection has the notes of the claims that it carried.

    Only the thread that has a connection writes its notes, so none is lost because two threads do something for one
    owner at the same time; others read them. A note that stays for too long does no harm: a clean-up follows in vain.
    """

    def __init__(self, where: str, timeout: float) -> None:
        super().__init__(where, timeout)
        self.strands: Living[Strand] = Living()
        self.closed: dict[Strand, None] = {}
        """Those whose claims may still arrive."""

    def unanswered_of(self, owner: str) -> list[Any]:
        return [strand for strand in self.strands if owner in strand.claims]

    def follows(self, owner: str, strand: Any) -> None:
        strand.claims.pop(owner, None)
        if not strand.claims:
            self.closed.pop(strand, None)

    def _follow(self, owner: str, strand: Any, packed: bytes, is_done: bool) -> bool:
        """The note goes while nobody else can write a new one."""
        left: bool = strand.follow(packed, owner if is_done else None)
        return left


class Strand:
    """The connection of a bundle to one node."""

    __slots__ = ("__weakref__", "_buffer", "_feed", "_gets", "_is_tls", "_receive", "_replies", "_send", "_timeout",
                 "bundle", "claims", "due", "era", "fd", "has_answered", "is_closed", "is_read", "looks", "node",
                 "pool", "sock", "wire")  # fmt: skip

    bundle: weakref.ref[Bundle]
    """In which it is, or was before it was let go."""
    pool: Pool
    """Whose it is; known weakly, too."""

    def __init__(self, wire: Wire, node: int, era: object, timeout: float) -> None:
        self.wire = wire
        self.node = node
        self.era = era
        """Older than the node's own: the node was given up for lost since it was made."""
        self.due: deque[Due] = deque()
        self.claims: dict[str, Due] = {}
        """By owner: the last of its claims in `due`, unless a clean-up has followed it."""
        self.has_answered = False
        self.is_closed = False
        self.is_read = False
        """Just now. Or an interrupt has ended that: then it is not known which reply comes next."""
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

    def read(self) -> tuple[Due, list[Any] | None] | None:
        """What is there; then as `next`. Raises OSError; one of WOULD_BLOCK if there is nothing."""
        buffer = self._buffer
        self.is_read = True
        try:
            self._feed(buffer, 0, self._receive(buffer) or _closed())
        except WOULD_BLOCK:
            self.is_read = False
            raise
        while self._is_tls and self.sock.pending():  # type: ignore[attr-defined]
            self._feed(buffer, 0, self._receive(buffer) or _closed())
        return self.next()

    def next(self) -> tuple[Due, list[Any] | None] | None:
        """The next request whose replies have all been read, and those; None instead if the node had forgotten its
        script. Raises HiredisError."""
        self.is_read = True
        reply = self._gets()
        if reply is False:
            self.is_read = False
            return None
        due, replies = self.due, self._replies
        while due:
            replies.append(reply)
            if len(replies) == due[0].replies:
                self.has_answered = True
                may_be_forgotten = type(reply) is not int or due[0].replies > 1
                is_forgotten = may_be_forgotten and self.pool.is_forgotten(self.node, due[0], replies)
                self._replies = []
                answered = due.popleft()
                for owner in answered.owners:
                    if self.claims.get(owner) is answered:
                        self.claims.pop(owner, None)  # another thread's clean-up may have been quicker
                self.is_read = False
                return answered, None if is_forgotten else replies
            reply = self._gets()
            if reply is False:
                self.is_read = False
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
        for owner in due.owners:
            self.claims[owner] = due
        try:
            return self.send(packed)
        except OSError:
            return False

    def withdraw(self, due: Due) -> None:
        """It has not left, and never will."""
        remove(self.due, due)
        for owner in due.owners:
            earlier = [each for each in list(self.due) if owner in each.owners]
            if earlier:
                self.claims[owner] = earlier[-1]
            else:
                self.claims.pop(owner, None)

    def follow(self, packed: bytes, ended: str | None = None) -> bool:
        """`ended`: who has nothing there after this."""
        return self.pool.follow_on(self, packed, ended)

    def is_over(self) -> bool:
        """Everything was answered that nobody waits for, or nothing will be; or the order of its replies is not known,
        after an interrupt, or because another thread reads it: then its clean-ups are sent again elsewhere."""
        if self.is_read:
            return True
        try:
            self.read()
            while self.next() is not None:
                pass
        except WOULD_BLOCK:
            pass
        except (OSError, HiredisError):
            return True
        return not self.due

    def close(self) -> None:
        """What it carried may not have arrived. `is_closed` comes first: who lets something follow looks at it last."""
        self.is_closed = True
        self.pool.closes(self)
        self.wire.close()


def remove(queue: deque[T], item: T) -> None:
    try:
        queue.remove(item)
    except ValueError:  # another thread was quicker
        pass


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
        self.user: str | None = None
        """The owner for whom it was lent last."""
        self.is_old = False
        """It may have connections to nodes that were given up for lost since they were made."""
        self.taught: set[object] = set()
        """Kinds of requests whose scripts were sent on each of its connections."""
        self.after: deque[tuple[Strand, bytes, str | None]] = deque()
        """Clean-ups that others have put here while it was lent, to be sent by who has it, and whose last ones."""
        self.is_dropped = False
        """It will not be lent again, and nobody uses it: clean-ups may follow on it from any thread."""

    def put(self, strand: Strand) -> None:
        strand.bundle = weakref.ref(self)
        self.taught.clear()
        self.strands[strand.node] = strand
        self.by_fd[strand.fd] = strand
        self.poller.register(strand.fd, READABLE)
        self.gaps = self.strands.count(None)

    def lends(self, strand: Strand) -> bool:
        """Whoever has this bundle, if anybody has, may use this connection."""
        return not self.is_dropped and not strand.is_closed and self.strands[strand.node] is strand

    def take_out(self, strand: Strand) -> None:
        self.strands[strand.node] = None
        self.gaps = self.strands.count(None)
        self.by_fd.pop(strand.fd, None)
        try:
            self.poller.unregister(strand.fd)
        except KeyError:  # an interrupt came before it was registered
            pass


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
