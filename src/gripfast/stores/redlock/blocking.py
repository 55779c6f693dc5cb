"""The blocking driver: bundles of connections, one to each node, that threads borrow, and one more for notifications.

A thread writes to all nodes and reads whoever answers first, until the ballot is decided. The bundle goes back at once:
what is still to come is read, and dropped, by the next one who borrows it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hiredis import HiredisError

from gripfast.core.ports import Inbox
from gripfast.core.redlock.nodes import (
    Answer,
    Ballot,
    Each,
    Failed,
    Free,
    Request,
    Unlock,
    Vote,
)
from gripfast.machine import boottime
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut
from gripfast.stores.redis.faults import not_answered as silent
from gripfast.stores.redis.listening import ListeningInbox
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.bundle import WOULD_BLOCK, Bundle, Due, Strand
from gripfast.stores.redlock.health import Known, Node, make_all
from gripfast.stores.redlock.notifications import Notifications
from gripfast.stores.redlock.polls import after_following, may_repeat, not_answered, only_cleans, too_few
from gripfast.stores.redlock.pool import Followed, Pool
from gripfast.stores.redlock.protocol import Wording


class _Round:
    """One poll. What it has sent names it as the asker."""

    __slots__ = (
        "ballot",
        "cut",
        "followed",
        "is_decided",
        "is_sent",
        "pending",
        "repeated",
        "requests",
        "timeout",
        "told_in_full",
    )

    def __init__(self, requests: Sequence[Request | None], ballot: Ballot, timeout: float) -> None:
        self.requests = requests
        self.ballot = ballot
        self.timeout = timeout
        self.pending = 0
        """Nodes that were asked and have not answered yet."""
        self.is_decided = False
        self.is_sent = False
        """From now on, whoever owes it nothing has answered, or was told to have failed."""
        self.cut: set[int] = set()
        """Nodes whose connection had worked before, and turned out to be closed: they are asked on another one."""
        self.repeated: set[int] = set()
        """Nodes at which it may have arrived before."""
        self.told_in_full: set[int] = set()
        self.followed: Followed = _NOTHING

    def tell(self, node: int, answer: Answer) -> None:
        if not self.is_decided:
            self.is_decided = self.ballot.add(node, answer)

    def tell_unasked(self, node: int, answer: Answer) -> None:
        """Even if it is decided: it matters whether any node was asked."""
        self.is_decided = self.ballot.add(node, answer) or self.is_decided


class _Nobody:
    """The ballot of those who do not wait."""

    is_lost = False

    def add(self, node: int, answer: Answer) -> bool:
        return True


class BlockingNodes:
    def __init__(
        self,
        dialers: Sequence[Dialer],
        wording: Wording,
        *,
        chase: Callable[[Free], Sequence[bool | None]] | None = None,
        at_end: Callable[[], None] = lambda: None,
        keeps_bundles: bool = True,
    ) -> None:
        self.names: Sequence[str] = [dialer.where for dialer in dialers]
        self._wording = wording
        self._timeout = max(dialer.timeout for dialer in dialers)
        self._known = Known()
        self._nodes = [Node(dialer, self._known) for dialer in dialers]
        for node in self._nodes:
            node.belongs_to(self)
        self._pool = Pool(self._nodes, self._known, wording, chase, keeps_bundles)
        self._inboxes = Inboxes()
        self._notifications = Notifications(self._nodes, self._inboxes, self._timeout)
        self._at_end = at_end

    # -- asking --------------------------------------------------------------------------------------------------

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        if self._pool.dropped:
            self._pool.pick_up()
        first = requests[0] if requests[0] is not None else _first(requests)
        if first is None:
            return
        loan = self._pool.borrow(first)
        bundle = loan.bundle
        timeout = self._timeout if within > self._timeout else within
        if bundle.gaps:
            self._fill(bundle, requests, timeout)
        round = _Round(requests, ballot, timeout)
        until = self._ask(round, bundle) + timeout
        if type(first) in _CLEANS:
            round.followed = self._pool.follow(requests, bundle)
        if round.pending < len(requests):
            self._tell_failures(round, bundle)
        if not round.is_decided:
            self._hear(round, bundle, until)
        self._pool.put_back(loan)

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        """In full: nobody reads the reply, and so nobody would see that the script was forgotten."""
        chosen = set(nodes)
        if not chosen:
            return
        if self._pool.dropped:
            self._pool.pick_up()
        requests = [request if at in chosen else None for at in range(len(self._nodes))]
        loan = self._pool.borrow(request)
        if loan.bundle.gaps:
            self._fill(loan.bundle, requests, self._timeout, is_urgent=False)
        self._ask(_Round(requests, _NOBODY, self._timeout), loan.bundle, is_full=True)
        if type(request) in _CLEANS:
            self._pool.follow(requests, loan.bundle)
            self._pool.leave(loan.bundle, request, chosen)
        self._pool.put_back(loan)

    def _ask(self, round: _Round, bundle: Bundle, is_full: bool = False) -> float:
        """When it was sent, to all to whom there is a connection."""
        now = boottime()
        overdue = now - self._timeout
        last: Request | None = None
        asked = 0
        for request, strand in zip(round.requests, bundle.strands, strict=True):
            if request is None or strand is None:
                continue
            if request is not last:
                last = request
                due = Due(self._wording.count(request), now, round, request, self._pool.carry(request, bundle))
                is_plain = not is_full and self._is_plain(request)
                packed = self._wording.pack(request, b"") if is_plain else b""
            if not is_plain:
                packed = self._packed(request, strand.node, is_full)
            queue = strand.due
            if queue and queue[0].sent_at < overdue and not self._catches_up(round, bundle, strand):
                continue
            queue.append(due)
            try:
                if strand.send(packed):
                    asked += 1
                else:  # it has not even read what it was sent before
                    queue.pop()
                    self._is_silent(bundle, strand, self._timeout)
            except OSError as error:
                queue.pop()
                self._is_cut(round, bundle, strand, error)
        round.pending = asked
        round.is_sent = True
        return now

    def _is_plain(self, request: Request) -> bool:
        """The same for all nodes: none has to be sent a script, or told where this waiter listens."""
        taught = self._known.taught
        if type(request) is Each:
            return all(len(taught.get(kind, ())) == len(self._nodes) for kind in set(map(type, request.requests)))
        return len(taught.get(type(request), ())) == len(self._nodes) and not (type(request) is Vote and request.waits)

    def _packed(self, request: Request, at: int, is_full: bool) -> bytes:
        if type(request) is Each:
            return b"".join([self._packed(each, at, is_full) for each in request.requests])
        channel = self._notifications.channels[at] if type(request) is Vote and request.waits else b""
        if is_full or self._known.has_to_teach(type(request), at):
            return self._wording.in_full(request, channel)
        return self._wording.pack(request, channel)

    def _catches_up(self, round: _Round, bundle: Bundle, strand: Strand) -> bool:
        """What it was asked before should have been answered by now; nobody has looked since."""
        try:
            self._take(round, strand, strand.read())
        except WOULD_BLOCK:
            self._is_silent(bundle, strand, self._timeout)
        except (OSError, HiredisError) as error:
            self._is_cut(round, bundle, strand, error)
        return bundle.strands[strand.node] is strand

    def _tell_failures(self, round: _Round, bundle: Bundle) -> None:
        """Of those who could not be asked."""
        for at, request in enumerate(round.requests):
            if request is not None and bundle.strands[at] is None and at not in round.cut:
                node = self._nodes[at]
                if not node.is_up:
                    node.look_after()
                round.tell_unasked(at, _not_asked(request, at, node.failed(), round.followed))

    # -- hearing -------------------------------------------------------------------------------------------------

    def _hear(self, round: _Round, bundle: Bundle, until: float) -> None:
        poll, by_fd = bundle.poller.poll, bundle.by_fd
        while not round.is_decided:
            if round.cut:
                until = self._ask_again(round, bundle)
            if not round.pending:
                return
            # Once more at its end: this process may have been paused, and everybody has answered meanwhile.
            ready = poll(max(0.0, until - boottime()) * 1000) or poll(0)
            if not ready and boottime() >= until:
                self._give_up_waiting(round, bundle)
                return
            for fd, _ in ready:
                if self._read(round, bundle, by_fd[fd]):
                    return

    def _read(self, round: _Round, bundle: Bundle, strand: Strand) -> bool:
        """True once it is decided."""
        try:
            self._take(round, strand, strand.read())
        except WOULD_BLOCK:  # TLS has something to say to itself
            pass
        except (OSError, HiredisError) as error:
            self._is_cut(round, bundle, strand, error)
        return round.is_decided

    def _take(self, round: _Round, strand: Strand, heard: tuple[Due, list[Any]] | None) -> None:
        """This, and whatever else was read."""
        while heard is not None:
            due, replies = heard
            is_forgotten = (type(replies[0]) is not int or due.replies > 1) and self._wording.forgot(replies)
            if not (is_forgotten and self._asks_in_full(round, strand, due)) and due.asker is round:
                node = strand.node
                answer = self._wording.read(due.request, replies, self.names[node], node in round.repeated)
                if round.followed:
                    answer = self._checked(round, node, answer)
                round.pending -= 1
                round.tell(node, answer)
            heard = strand.next()

    def _checked(self, round: _Round, node: int, answer: Answer) -> Answer:
        """Something has followed, or could not follow, claims that this node may get on other connections."""
        request = round.requests[node]
        if isinstance(request, Each) and isinstance(answer, list):
            asked = zip(request.requests, answer, strict=True)
            return [self._checked_one(round, node, part, each) for part, each in asked]
        return self._checked_one(round, node, request, answer)

    def _checked_one(self, round: _Round, node: int, request: Request | None, answer: Answer) -> Answer:
        has_left = _has_left(request, node, round.followed)
        return after_following(self.names[node], answer, has_left, node in round.repeated)

    def _asks_in_full(self, round: _Round, strand: Strand, due: Due) -> bool:
        """The node has forgotten the script. If nobody waits for the answer, only clean-ups are asked again."""
        self._known.has_forgotten(strand.node)
        if due.asker is round:
            if strand.node in round.told_in_full:
                return False
            round.told_in_full.add(strand.node)
        elif not only_cleans(due.request):
            return False
        if not strand.send_after(self._packed(due.request, strand.node, is_full=False), due):
            raise ConnectionResetError
        return True

    def _is_cut(self, round: _Round, bundle: Bundle, strand: Strand, error: Exception) -> None:
        """One that has worked before may have been closed while it was idle: a new one may do better."""
        at = strand.node
        self._pool.is_cut(bundle, strand)
        self._known.has_forgotten(at)  # it may be another process by now
        was_asked = any(due.asker is round for due in list(strand.due))
        if round.is_sent and not was_asked:
            return  # no node is counted twice
        fault = cut(self.names[at], error)
        request = round.requests[at]
        if may_repeat(request, strand.has_answered, at in round.repeated, was_asked):
            if request is not None:
                round.cut.add(at)
        else:
            self._nodes[at].give_up(fault, strand.era)
            if was_asked:
                round.tell(at, _failed(fault))
        if was_asked:
            round.pending -= 1
            round.repeated.add(at)

    def _ask_again(self, round: _Round, bundle: Bundle) -> float:
        """Those whose connection was cut, on new ones. When the time for that is over."""
        places, round.cut = round.cut, set()
        self._dial(bundle, places, round.timeout)
        now = boottime()
        for at in places:
            request, strand = round.requests[at], bundle.strands[at]
            assert request is not None
            if strand is None:
                failed = self._nodes[at].failed()
                round.tell(at, failed._replace(was_asked=at in round.repeated))
                continue
            due = Due(self._wording.count(request), now, round, request, self._pool.carry(request, bundle))
            round.pending += 1
            if not strand.send_after(self._packed(request, at, is_full=False), due):
                self._is_cut(round, bundle, strand, ConnectionResetError())
        return now + round.timeout

    def _give_up_waiting(self, round: _Round, bundle: Bundle) -> None:
        for strand in list(bundle.strands):
            if strand is not None and any(due.asker is round for due in list(strand.due)):
                round.tell(strand.node, _failed(self._is_silent(bundle, strand, round.timeout)))

    def _is_silent(self, bundle: Bundle, strand: Strand, seconds: float) -> Fault:
        fault = silent(self.names[strand.node], seconds)
        self._pool.let_go(bundle, strand)
        self._known.has_forgotten(strand.node)
        self._nodes[strand.node].give_up(fault, strand.era)
        return fault

    # -- bundles -------------------------------------------------------------------------------------------------

    def _fill(self, bundle: Bundle, requests: Sequence[Request | None], timeout: float, is_urgent: bool = True) -> None:
        """Connect to those who are to be asked, unless they are down; to these, too, if there is no majority else."""
        asked = [at for at, request in enumerate(requests) if request is not None]
        gaps = [at for at in asked if bundle.strands[at] is None]
        up = [at for at in gaps if self._nodes[at].is_up]
        is_short = is_urgent and too_few(len(asked) - len(gaps) + len(up), len(asked))
        wanted = gaps if is_short else up
        if wanted:
            self._dial(bundle, wanted, timeout)

    def _dial(self, bundle: Bundle, places: Iterable[int], timeout: float) -> None:
        eras = {at: self._nodes[at].era for at in places}
        spares = {at: spare for at in places if (spare := self._nodes[at].spare()) is not None}
        makes = {at: self._nodes[at].dialer.connect for at in places if at not in spares}
        for at, made in (spares | make_all(makes, self._nodes, timeout)).items():
            if isinstance(made, Wire):
                self._pool.put(bundle, Strand(made, at, eras[at], self._timeout))
            else:
                self._nodes[at].give_up(made, eras[at])

    # -- the rest ------------------------------------------------------------------------------------------------

    def inbox(self) -> Inbox:
        return ListeningInbox(self._notifications)

    def hears(self, owner: str, inbox: Inbox) -> bool:
        self._inboxes.add(owner, inbox)
        return self._notifications.is_heard

    async def listen(self) -> None:
        self._notifications.open()

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def chance(self) -> float:
        return random.random()

    def shut(self) -> None:
        self._notifications.close()

    async def close(self) -> None:
        self._known.is_closed = True
        self._notifications.close()
        for node in self._nodes:
            node.close()
        self._pool.close()
        self._at_end()


_NOBODY = _Nobody()
_NOTHING: Followed = {}
_CLEANS = frozenset({Free, Unlock, Each})


def _first(requests: Sequence[Request | None]) -> Request | None:
    return next((request for request in requests if request is not None), None)


def _failed(fault: Fault) -> Failed:
    return Failed(fault.error, was_asked=True, is_permanent=fault.is_permanent)


def _has_left(request: Request | None, node: int, followed: Followed) -> bool | None:
    return followed.get((getattr(request, "owner", ""), node))


def _not_asked(request: Request, node: int, failed: Failed, followed: Followed) -> Answer:
    """What was sent after is as good as done."""
    parts: Sequence[Request] = request.requests if isinstance(request, Each) else (request,)
    return not_answered(request, failed, [_has_left(part, node, followed) for part in parts])
