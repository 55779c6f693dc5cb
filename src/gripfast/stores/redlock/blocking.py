"""The blocking driver: bundles of connections, one to each node, that threads borrow, and one more for notifications.

A thread writes to all nodes and reads whoever answers first, until the ballot is decided. The bundle goes back at once:
what is still to come is read, and dropped, by the next one who borrows it.
"""

from __future__ import annotations

import math
import random
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hiredis import HiredisError

from gripfast.core.ports import Inbox
from gripfast.core.redlock.ballot import Roll
from gripfast.core.redlock.nodes import Answer, Ballot, Decided, Free, Request, Vote
from gripfast.machine import boottime
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut, not_answered
from gripfast.stores.redis.listening import ListeningInbox
from gripfast.stores.redis.unread import READ_BY_ANOTHER, Book, Parked
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock import polls
from gripfast.stores.redlock.bundle import WOULD_BLOCK, Bundle, Due, Loan, Strand
from gripfast.stores.redlock.health import Node, make_all
from gripfast.stores.redlock.notifications import Notifications
from gripfast.stores.redlock.pool import Followed, Pool
from gripfast.stores.redlock.protocol import Wording


class _Round:
    """One poll. What it has sent names it as the asker."""

    __slots__ = ("__weakref__", "ballot", "cleans", "cut", "decided", "followed", "is_decided", "is_heard", "is_sent",
                 "late_at", "name", "parked", "pending", "repeated", "requests", "timeout")  # fmt: skip

    name: str
    late_at: float
    parked: weakref.ref[Parked[Any, Any]]
    """Of one that nobody waits for, as an `Unread` of `stores/redis/unread.py` has them."""

    def __init__(
        self, requests: Sequence[Request | None], ballot: Ballot, timeout: float, is_heard: bool = True
    ) -> None:
        self.requests = requests
        self.ballot = ballot
        self.timeout = timeout
        self.is_heard = is_heard
        """Somebody waits for the answers."""
        self.cleans = False
        self.pending = 0
        """Nodes that were asked and have not answered yet."""
        self.is_decided = not is_heard
        self.is_sent = False
        """From now on, whoever owes it nothing has answered, or was told to have failed."""
        self.cut = _NO_NODE
        """Nodes whose connection had worked before, and turned out to be closed: they are asked on another one."""
        self.repeated = _NO_NODE
        """Nodes at which it may have arrived before."""
        self.followed = _NOTHING
        self.decided: Decided | None = None
        """Not None: nobody waits for it, and this is told what comes of it, by whoever reads that."""

    def end(self, error: Exception | None) -> None:
        """Of one that nobody waits for."""
        if self.decided is not None and not self.decided.done():
            self.decided.set_result(error)

    def tell(self, node: int, answer: Answer) -> None:
        if not self.is_decided:
            self.is_decided = self.ballot.add(node, answer)

    def tell_unasked(self, node: int, answer: Answer) -> None:
        """Even if it is decided: it matters whether any node was asked."""
        self.is_decided = self.ballot.add(node, answer) or self.is_decided


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
        self._nodes = [Node(dialer) for dialer in dialers]
        for node in self._nodes:
            node.belongs_to(self)
        self._inboxes = Inboxes()
        self._pool = Pool(self._nodes, wording, self._inboxes, chase, keeps_bundles)
        self._late: Book[Loan, _Round] = Book()
        self._unread = self._late.by_name
        self._notifications = Notifications(self._nodes, self._inboxes, self._timeout)
        self._at_end = at_end

    # -- asking --------------------------------------------------------------------------------------------------

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        first = requests[0]
        if first is None:
            first = next((request for request in requests if request is not None), None)
        if first is not None:
            self._poll(first, _Round(requests, ballot, self._timeout if within > self._timeout else within))

    # -- releases whose answers nobody waits for (`stores/redis/unread.py`) ---------------------------------------

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        """On a bundle that is complete, and is parked then."""
        round = _Round(requests, ballot, self._timeout)
        round.cleans, round.decided = True, decided
        first = next(request for request in requests if request is not None)
        round.name = getattr(first, "name", "")
        parked = self._late.find(round.name)
        if parked is None or not self._late.take(parked):
            if self._late.is_full:
                return False
            parked = Parked(self._pool.borrow(first))
        bundle = parked.connection.bundle
        if bundle.gaps:
            self._pool.put_back(parked.connection)
            return False
        try:
            round.followed = self._pool.follow(requests, bundle)
            round.late_at = self._ask(round, bundle) + self._timeout
            if round.pending < len(requests):
                self._tell_failures(round, bundle)
        except BaseException:
            bundle.is_dropped = True
            raise
        self._late.has_left(parked, round)
        return True

    async def read_late(self, within: float = 0.0) -> bool:
        until = boottime() + within
        for parked in self._late.all():
            if self._late.take(parked):
                self._read_parked(parked, until)
        self._late.forget_dropped()
        return bool(self._unread)

    def _read_parked(self, parked: Parked[Loan, _Round], until: float) -> None:
        bundle = parked.connection.bundle
        nobody = _Round((), Roll(0, 0), self._timeout, is_heard=False)
        nobody.is_sent = True
        while any(not late.is_decided for late in parked.unread):
            ready = bundle.poller.poll(max(0.0, until - boottime()) * 1000)
            for fd, _ in ready:
                self._read(nobody, bundle, bundle.by_fd[fd])
            if not ready:
                break
        self._put_back(parked)

    def _put_back(self, parked: Parked[Loan, _Round]) -> None:
        self._strike(parked)
        if parked.unread:
            self._late.put_back(parked)
        else:
            self._pool.put_back(parked.connection)

    def _strike(self, parked: Parked[Loan, _Round], is_lost: bool = False) -> None:
        """What is decided, or has waited for too long, or was lost: then a clean-up follows."""
        now = boottime()
        for late in list(parked.unread):
            if is_lost or late.is_decided or late.late_at < now:
                late.end(TimeoutError())
                self._late.strike(parked, late)

    def _fail_late(self, strand: Strand) -> None:
        """Nobody reads it any more."""
        fault = cut(self.names[strand.node], None)
        for due in list(strand.due):
            late = due.asker
            if type(late) is _Round and late.decided is not None:
                late.pending -= 1
                late.tell(strand.node, polls.failed(fault, was_asked=True))
                if late.is_decided or not late.pending:
                    late.end(None)

    def _parked(self, name: str | None) -> Parked[Loan, _Round] | None:
        """As that of `stores/redis/blocking.py`."""
        ends = boottime() + self._timeout
        while name is not None and (parked := self._late.find(name)) is not None and boottime() < ends:
            if self._late.take(parked):
                return parked
            del parked
            time.sleep(READ_BY_ANOTHER)
        return None if self._pool.has_idle else self._late.any()

    # --------------------------------------------------------------------------------------------------------------

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        chosen = set(nodes)
        if chosen:
            count = len(self._nodes)
            requests = [request if at in chosen else None for at in range(count)]
            self._poll(request, _Round(requests, Roll(count, count), self._timeout, is_heard=False))

    def _poll(self, first: Request, round: _Round) -> None:
        if self._pool.dropped:
            self._pool.pick_up()
        parked = self._parked(getattr(first, "name", None)) if self._unread else None
        loan = self._pool.borrow(first) if parked is None else parked.connection
        bundle = loan.bundle
        try:
            if bundle.gaps:
                self._fill(round, bundle)
            if type(first) is not Vote and polls.only_cleans(first):
                round.cleans = True
                round.followed = self._pool.follow(round.requests, bundle)
            until = self._ask(round, bundle) + round.timeout
            if round.pending < len(round.requests):
                self._tell_failures(round, bundle)
            if not round.is_decided:
                self._hear(round, bundle, until)
        except BaseException:
            bundle.is_dropped = True  # also while the frames of this live on, and with them the loan
            if parked is not None:
                self._strike(parked, is_lost=True)
            raise
        if parked is None:
            self._pool.put_back(loan)
        else:
            self._put_back(parked)

    def _ask(self, round: _Round, bundle: Bundle) -> float:
        """When it was sent, to all to whom there is a connection. In full if nobody will see that a script was
        forgotten."""
        now = boottime()
        overdue = now - self._timeout
        last: Request | None = None
        asked, is_full = 0, False
        for request, strand in zip(round.requests, bundle.strands, strict=True):
            if request is None or strand is None:
                continue
            if request is not last:
                last = request
                kind = polls.kind_of(request)
                ended = polls.ends(request, self._inboxes) if round.cleans else ()
                owners = polls.claims(request)
                due = Due(len(polls.parts_of(request)), now, round, request, owners)
                is_full = kind not in bundle.taught or not round.is_heard
                is_same = not is_full and not (type(request) is Vote and request.waits)
                packed = self._wording.pack(request, b"") if is_same else b""
            if not is_same:
                packed = self._words(request, strand, is_full)
            queue = strand.due
            if queue and queue[0].sent_at < overdue and not self._catches_up(round, bundle, strand):
                continue
            queue.append(due)
            for owner in owners:
                strand.claims[owner] = due
            try:
                if strand.send(packed):
                    asked += 1
                    for owner in ended:
                        strand.claims.pop(owner, None)  # it is behind them
                else:  # it has not even read what it was sent before
                    strand.withdraw(due)
                    self._is_silent(bundle, strand, self._timeout)
            except OSError as error:
                strand.withdraw(due)
                self._is_cut(round, bundle, strand, error)
        if is_full and asked == len(bundle.by_fd):
            bundle.taught.add(kind)
        round.pending = asked
        round.is_sent = True
        return now

    def _words(self, request: Request, strand: Strand, is_full: bool) -> bytes:
        channel = self._notifications.channels[strand.node] if type(request) is Vote and request.waits else b""
        return self._wording.in_full(request, channel) if is_full else self._wording.pack(request, channel)

    def _catches_up(self, round: _Round, bundle: Bundle, strand: Strand) -> bool:
        """What it was asked before should have been answered by now; nobody has looked since."""
        if not self._read(round, bundle, strand):
            self._is_silent(bundle, strand, self._timeout)
        return bundle.strands[strand.node] is strand

    def _tell_failures(self, round: _Round, bundle: Bundle) -> None:
        """Of those who could not be asked."""
        unasked = [None if bundle.strands[at] is not None else each for at, each in enumerate(round.requests)]
        if round.cleans:  # the connections that were lost just now are others by now
            for at, left in self._pool.follow(unasked, bundle).items():
                before = round.followed.get(at, (None,) * len(left))
                round.followed[at] = [polls.both(*each) for each in zip(before, left, strict=True)]
        for at, request in enumerate(unasked):
            if request is None:
                continue
            node = self._nodes[at]
            if not round.is_heard:
                self._pool.lose(at, request)
            elif at not in round.cut:
                if node.trouble is not None:
                    node.look_after()
                failed = polls.failed(node.still_down(), was_asked=False)
                round.tell_unasked(at, polls.not_answered(request, failed, round.followed.get(at, ())))

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
                self._read(round, bundle, by_fd[fd])
                if round.is_decided:
                    return  # type: ignore[unreachable] # by this

    def _read(self, round: _Round, bundle: Bundle, strand: Strand) -> bool:
        """False if there is nothing, as when TLS has something to say to itself."""
        try:
            self._take(round, bundle, strand, strand.read())
        except WOULD_BLOCK:
            return False
        except (OSError, HiredisError) as error:
            self._is_cut(round, bundle, strand, error)
        return True

    def _take(self, round: _Round, bundle: Bundle, strand: Strand, heard: tuple[Due, list[Any] | None] | None) -> None:
        """This, and whatever else was read."""
        while heard is not None:
            due, replies = heard
            if replies is None:
                bundle.taught.clear()
                self._ask_in_full(round, bundle, strand, due)
            elif due.asker is round:
                self._answered(round, strand.node, due, replies)
            elif type(due.asker) is _Round and due.asker.decided is not None:
                self._answered(due.asker, strand.node, due, replies)
                if due.asker.is_decided or not due.asker.pending:
                    due.asker.end(None)
            heard = strand.next()

    def _answered(self, round: _Round, node: int, due: Due, replies: list[Any]) -> None:
        request: Request = due.request  # type: ignore[assignment] # nobody asks for what has followed
        answer = self._wording.read(request, replies, self.names[node], node in round.repeated)
        if round.followed and node in round.followed:
            left = round.followed[node]
            answer = polls.after_following(self.names[node], answer, left, node in round.repeated)
        round.pending -= 1
        round.tell(node, answer)

    def _ask_in_full(self, round: _Round, bundle: Bundle, strand: Strand, due: Due) -> None:
        """The node has forgotten the script."""
        assert not isinstance(due.request, bytes)
        if due.asker is not round:
            self._pool.send_lost(bundle)  # it may be a clean-up
        elif not strand.send_after(self._words(due.request, strand, is_full=True), due._replace(is_full=True)):
            raise ConnectionResetError

    def _is_cut(self, round: _Round, bundle: Bundle, strand: Strand, error: Exception) -> None:
        """One that has worked before may have been closed while it was idle: a new one may do better."""
        at = strand.node
        strand.close()  # first: its claims may still arrive
        bundle.take_out(strand)
        if self._unread:
            self._fail_late(strand)
        was_asked = any(due.asker is round for due in list(strand.due))
        if round.is_sent and not was_asked:
            return  # no node is counted twice
        fault = cut(self.names[at], error)
        request = round.requests[at]
        assert request is not None
        if polls.may_repeat(request, strand.has_answered, at in round.repeated, was_asked):
            round.cut |= {at}
        else:
            self._nodes[at].give_up(fault, strand.era)
            if was_asked:
                round.tell(at, polls.failed(fault, was_asked))
        if was_asked:
            round.pending -= 1
            round.repeated |= {at}

    def _ask_again(self, round: _Round, bundle: Bundle) -> float:
        """Those whose connection was cut, on new ones. When the time for that is over."""
        places, round.cut = round.cut, _NO_NODE
        self._dial(bundle, places, round.timeout)
        now = boottime()
        for at in places:
            request, strand = round.requests[at], bundle.strands[at]
            assert request is not None
            if strand is None:
                round.tell(at, polls.failed(self._nodes[at].still_down(), was_asked=at in round.repeated))
                continue
            due = Due(len(polls.parts_of(request)), now, round, request, polls.claims(request))
            round.pending += 1
            if not strand.send_after(self._words(request, strand, is_full=True), due):
                self._is_cut(round, bundle, strand, ConnectionResetError())
        return now + round.timeout

    def _give_up_waiting(self, round: _Round, bundle: Bundle) -> None:
        for strand in list(bundle.strands):
            if strand is not None and any(due.asker is round for due in list(strand.due)):
                fault = self._is_silent(bundle, strand, round.timeout)
                round.tell(strand.node, polls.failed(fault, was_asked=True))

    def _is_silent(self, bundle: Bundle, strand: Strand, seconds: float) -> Fault:
        fault = not_answered(self.names[strand.node], seconds)
        self._pool.let_go(bundle, strand)
        if self._unread:
            self._fail_late(strand)
        self._nodes[strand.node].give_up(fault, strand.era)
        return fault

    # -- bundles -------------------------------------------------------------------------------------------------

    def _fill(self, round: _Round, bundle: Bundle) -> None:
        """Connect to those who are to be asked, unless they are down."""
        asked = [at for at, request in enumerate(round.requests) if request is not None]
        gaps = [at for at in asked if bundle.strands[at] is None]
        up = [at for at in gaps if self._nodes[at].trouble is None]
        insists = round.is_heard and polls.too_few(len(asked) - len(gaps) + len(up), len(asked))
        if wanted := gaps if insists else up:
            self._dial(bundle, wanted, round.timeout)

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
        self._notifications.close()
        for node in self._nodes:
            node.close()
        for loan in self._late.close():
            self._pool.put_back(loan)
        self._pool.close()
        self._at_end()


_NO_NODE: frozenset[int] = frozenset()
_NOTHING: Followed = {}
