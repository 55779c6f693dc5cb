"""One connection to each node, lent together to one thread at a time: a talk (`talk.py`) that this thread drives.

A bundle goes back when what was asked is decided, though replies are still to come.
"""

from __future__ import annotations

import functools
import select
import weakref
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gripfast.bounded import Call
from gripfast.machine import boottime
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import LOOKS
from gripfast.stores.redis.shared import Opening
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.health import Node, ended
from gripfast.stores.redlock.lent import LentConversation, Timers
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.talk import Health, NodeTalk, Talk
from gripfast.timed_queue import TimedQueue

if TYPE_CHECKING:
    from gripfast.stores.redlock.pool import Pool


class Bundle:
    def __init__(
        self,
        pool: Pool,
        nodes: Sequence[Node],
        wording: Wording,
        inboxes: Inboxes,
        down: set[Health],
        beside: Sequence[NodeTalk | None],
    ) -> None:
        self.pool = pool
        """Whose it is; known weakly."""
        self.timers = Timers()
        self.by_fd: dict[int, LentConversation] = {}
        self.user: str | None = None
        """The owner for whom it was lent last."""
        self.era: object = None
        """Which loss of a node it knows."""
        self.after: deque[tuple[LentConversation, bytes, str | None]] = deque()
        """Clean-ups that others have put here while it was lent, to be sent by who has it, and whose last ones."""
        self.is_dropped = False
        """It will not be lent again, and nobody uses it: clean-ups may follow on it from any thread."""
        self.dials: dict[Call[Wire], tuple[LentOpening, Decision]] = {}
        """Connections that are being made."""
        self.made: TimedQueue[Call[Wire]] = TimedQueue()
        self._timeout = self._seconds = max(node.server.timeout for node in nodes)
        """For how long it may be waited for each of them."""
        self._step = self._timeout / LOOKS
        self._poller = new_poller()
        talks = [
            NodeTalk(node, LentOpening(node, self), wording, inboxes, self.timers, is_lent=True, beside=other)
            for node, other in zip(nodes, beside, strict=True)
        ]
        self.talk = Talk(talks, wording, down, functools.partial(pool.must_follow, self.by_fd))

    # -- connections ---------------------------------------------------------------------------------------------

    def put(self, conversation: LentConversation) -> None:
        self.by_fd[conversation.fd] = conversation
        self._poller.register(conversation.fd, READABLE)

    def take_out(self, conversation: LentConversation) -> None:
        if self.by_fd.get(conversation.fd) is conversation:
            try:
                self._poller.unregister(conversation.fd)
            except KeyError:  # an interrupt came before it was registered
                pass
            self.by_fd.pop(conversation.fd, None)

    def look_through(self) -> None:
        """Use no connection that is older than the loss of its node."""
        for talk in self.talk.talks:
            conversation: LentConversation | None = talk.requests.latest
            if conversation is not None and conversation.era is not conversation.node.era:
                talk.let_go()

    def lends(self, conversation: LentConversation) -> bool:
        """Whoever has this bundle, if anybody has, may use this connection."""
        return not self.is_dropped and conversation.is_open

    # -- what the thread that has it does ------------------------------------------------------------------------

    def expect_within(self, within: float) -> None:
        self._seconds = min(within, self._timeout)
        self._step = min(within, self._timeout / LOOKS)

    def catch_up(self, now: float) -> None:
        """Nobody has looked since it was lent last: what should have come by now is there, or the node is silent."""
        for conversation in list(self.by_fd.values()):
            if conversation.owed:
                conversation.read()
        self.timers.run(now, makes_up=True)

    def hear(self, decision: Decision) -> None:
        """What the nodes say, until that."""
        poll, by_fd, timers = self._poller.poll, self.by_fd, self.timers
        while not decision.is_made:
            if self.dials:
                self.connect()
                continue
            # Once more at its end: this process may have been paused, and everybody has answered meanwhile.
            ready = poll(self._step * 1000) or poll(0)
            for fd, _ in ready:
                if (conversation := by_fd.get(fd)) is not None:
                    conversation.read()
                if decision.is_made:
                    return  # type: ignore[unreachable] # by this
            if boottime() >= timers.next_at:
                timers.run(boottime())

    def hear_until(self, moment: float) -> bool:
        """What the nodes say first; False if nothing comes until then."""
        ready = self._poller.poll(max(0.0, moment - boottime()) * 1000)
        for fd, _ in ready:
            if (conversation := self.by_fd.get(fd)) is not None:
                conversation.read()
        if boottime() >= self.timers.next_at:
            self.timers.run(boottime())
        return bool(ready)

    def connect(self) -> None:
        """Wait for all connections that are being made."""
        for call in ended(self.dials, self.made, self._seconds) if self.dials else ():
            opening, dialing = self.dials[call]
            opening.settle(dialing, call, opening.use)
            self.dials.pop(call, None)


class Decision:
    """Where others have a future. A thread that awaits one hears meanwhile what the nodes say."""

    __slots__ = ("_bundle", "_outcome", "is_made")

    def __init__(self, bundle: Bundle | None) -> None:
        self.is_made = False
        self._bundle = bundle
        self._outcome: Any = None

    def done(self) -> bool:
        return self.is_made

    def set_result(self, outcome: Any, /) -> None:
        self._outcome = outcome
        self.is_made = True

    def __await__(self) -> Generator[Any, None, Any]:
        if self._bundle is not None:
            self._bundle.hear(self)
        return self._outcome
        yield  # type: ignore[unreachable] # it makes this a generator


class LentOpening(Opening):
    """The connection of a bundle to one node. It is made on a thread, or whoever has looked after the node has made
    it."""

    def __init__(self, node: Node, bundle: Bundle) -> None:
        super().__init__(node.where, lambda: Decision(None))
        self._node = node
        self._bundle = weakref.ref(bundle)
        self.era: object = None

    def begin(self, dialing: Decision) -> None:
        node, bundle = self._node, self._bundle()
        assert bundle is not None
        self.era = node.era
        wire = node.spare()
        if wire is not None:
            self.made(dialing, wire, self.use)
        else:
            bundle.dials[node.dialer.calls.begin(node.dialer.connect, bundle.made.put)] = self, dialing

    def use(self, wire: Wire) -> LentConversation:
        bundle = self._bundle()
        assert bundle is not None
        conversation = LentConversation(wire, self._node, self.era, bundle)
        bundle.put(conversation)  # first: whoever dismisses the bundle leaves what it has
        self._node.server.conversations[conversation] = None
        if self.era is not self._node.era:
            bundle.era = None
        return conversation

    def too_late(self, error: TimeoutError) -> Fault:
        return self._node.dialer.late(error)

    def break_off(self, dialing: Decision, error: BaseException) -> None:
        """The whole bundle is dropped."""


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
