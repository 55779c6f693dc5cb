"""Who has which bundle of connections, and how clean-ups follow claims on bundles that others have.

Which claims are unanswered, and on which connections a clean-up has to follow, each node's `LentServer` knows. A
clean-up goes out on the bundle that carried what it cleans up, if that is idle; otherwise it follows there in one of
three ways (`follow_on`).

An interrupt may come at any instruction. So there is no mutex, and a bundle that was dropped by an interrupt is used by
nobody again, except that clean-ups follow on it.
"""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.core.redlock.nodes import Free, Request
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import IDLE_MOST
from gripfast.stores.redlock import polls
from gripfast.stores.redlock.bundle import Bundle, Dropped, Due, Loan, Strand, remove
from gripfast.stores.redlock.health import Node
from gripfast.stores.redlock.protocol import Wording

LOOK = 0.25
"""Seconds between two looks at connections on which nothing is asked any more."""
LOOKS_MOST = 4
"""Looks at a connection to a node that answers on others: nothing will come any more. An interrupt may do that."""
LOST_AT_ONCE = 50
"""Lost clean-ups that one request takes along."""

Followed = dict[int, Sequence[bool | None]]
"""By node, for each clean-up in its request: what `Server.clean_up_elsewhere` said. Only where it said something."""


class Pool:
    def __init__(
        self,
        nodes: Sequence[Node],
        wording: Wording,
        inboxes: Inboxes,
        chase: Callable[[Free], Sequence[bool | None]] | None,
        keeps_bundles: bool,
    ) -> None:
        self._nodes = nodes
        self._wording = wording
        self._inboxes = inboxes
        self._chase = chase
        self._idle: OrderedDict[Bundle, Loan] = OrderedDict()
        """In the order in which they came back. Those that are longest here go first: an owner is soon done with."""
        self._idle_most = IDLE_MOST if keeps_bundles else 0
        self._loans: dict[Bundle, Dropped] = {}
        self.dropped: deque[Dropped] = deque()
        """By interrupts: whoever comes next picks them up."""
        self._lost: Sequence[deque[bytes]] = [node.lost for node in nodes]
        self._strands: Living[Strand] = Living()
        """All connections."""
        self._looks_at = math.inf
        self._looking = Guard()
        """When to look whether any of those on which nothing is asked any more was answered, since the first one."""
        self._weak: Pool = weakref.proxy(self)

    def borrow(self, request: Request) -> Loan:
        """For the owner of this request, if it has one: best of all what carried the last one."""
        owner: str | None = getattr(request, "owner", None)
        loan = None
        if owner is not None and len(self._idle) > 1:
            loan = next((self._idle.pop(each, None) for each in list(self._idle) if each.user == owner), None)
        if loan is None:
            try:
                loan = self._idle.popitem(last=False)[1]
            except KeyError:
                loan = self._new_loan()
        bundle = loan.bundle
        bundle.user = owner
        if bundle.is_old:
            self._look_through(bundle)
        if self._looks_at < math.inf and boottime() >= self._looks_at:
            self._looking.run_if_free(self._close_the_answered)
        if any(self._lost):
            self.send_lost(bundle)
        return loan

    def _new_loan(self) -> Loan:
        bundle = Bundle(len(self._nodes))
        loan = Loan(bundle)
        dropped = Dropped(loan, self.dropped.append)
        dropped.bundle = bundle
        self._loans[bundle] = dropped
        return loan

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def put_back(self, loan: Loan) -> None:
        """Whoever leaves something to be sent looks afterwards whether it came back; so does this, the other way."""
        bundle = loan.bundle
        while len(self._idle) < self._idle_most:
            self._idle[bundle] = loan
            if not bundle.after and self._idle_most:
                return
            if self._idle.pop(bundle, None) is None:
                return
            self._send_left(bundle)
        self._dismiss(bundle)

    def _dismiss(self, bundle: Bundle) -> None:
        bundle.is_dropped = True  # first: who has left something looks at it afterwards
        self._send_left(bundle)
        for strand in bundle.strands:
            if strand is not None:
                self.let_go(bundle, strand)

    def pick_up(self) -> None:
        """What interrupts have dropped. Each is taken out last: if another interrupt comes, it is done again."""
        while self.dropped:
            try:
                dropped = self.dropped[0]
            except IndexError:  # another thread was quicker
                break
            bundle: Bundle | None = getattr(dropped, "bundle", None)
            if bundle is not None:  # else the interrupt came before it was lent to anyone
                self._dismiss(bundle)
                self._loans.pop(bundle, None)
            remove(self.dropped, dropped)

    def _look_through(self, bundle: Bundle) -> None:
        bundle.is_old = False
        for strand in list(bundle.strands):
            if strand is not None and strand.era is not self._nodes[strand.node].era:
                self.let_go(bundle, strand)

    # -- clean-ups -----------------------------------------------------------------------------------------------

    def follow(self, requests: Sequence[Request | None], bundle: Bundle) -> Followed:
        """Let clean-ups, before they leave on this bundle, follow the claims of their owners on other connections."""
        followed: Followed = {}
        if self._chase is None and len(self._strands) == len(bundle.by_fd):
            return followed  # as nearly always: there are no others
        chased = {} if self._chase is None else {free: self._chase(free) for free in _frees(requests)}
        for at, request in enumerate(requests):
            if request is not None:
                here, server = bundle.strands[at], self._nodes[at].server
                left = [
                    polls.both(
                        polls.follow(part, server, self._wording, self._inboxes, here),
                        chased[part][at] if part in chased else None,
                    )
                    for part in polls.parts_of(request)
                ]
                if left.count(None) < len(left):
                    followed[at] = left
        return followed

    def follow_on(self, strand: Strand, packed: bytes, ended: str | None) -> bool:
        """From any thread. Two must not write at a time, so this depends on who has the bundle. True if it left.

        It is idle: whoever takes it out may write, and puts it back. It is lent: this is left for who has it to send,
        before it goes back. Nobody uses it, or not this connection, ever again: whoever has to may write.
        """
        bundle = strand.bundle()
        loan = None if bundle is None else self._idle.pop(bundle, None)
        if bundle is None or loan is not None or not bundle.lends(strand):
            left = self._send_after(strand, packed, ended)
        else:
            left = True
            bundle.after.append((strand, packed, ended))
            loan = self._idle.pop(bundle, None)  # it may have come back meanwhile, or have been dropped
            if bundle.is_dropped:
                self._send_left(bundle)
            elif loan is None and self.dropped:
                self.pick_up()
        if loan is not None:
            self.put_back(loan)
        return left

    def _send_left(self, bundle: Bundle) -> None:
        """What others have left to be sent after, though the claims may be answered by now: they may have come after
        the clean-up that was sent elsewhere. Twice does no harm."""
        for left in list(bundle.after):
            strand, packed, _ = left
            if not self._send_after(*left):
                self.lose(strand.node, packed)
            remove(bundle.after, left)

    def _send_after(self, strand: Strand, packed: bytes, ended: str | None = None) -> bool:
        due = Due(1, boottime(), None, packed, is_full=True)
        is_sent = strand.send_after(packed, due)
        if not is_sent:
            strand.withdraw(due)
        if ended is not None:
            self._nodes[strand.node].server.follows(ended, strand)
        return is_sent and not strand.is_closed

    # -- connections ---------------------------------------------------------------------------------------------

    def put(self, bundle: Bundle, strand: Strand) -> None:
        node = self._nodes[strand.node]
        strand.pool = self._weak
        bundle.put(strand)
        self._strands.add(strand)
        node.server.strands.add(strand)
        if strand.era is not node.era:
            bundle.is_old = True
        if any(self._lost):
            self.send_lost(bundle)

    def let_go(self, bundle: Bundle, strand: Strand) -> None:
        """Nothing is asked on it any more. It is kept until it was answered: a clean-up may have to follow on it, and a
        node that finds it closed would drop what it has not read yet, of which only a part may be a clean-up."""
        if strand.due:
            self._nodes[strand.node].server.park(strand)
            self._looks_at = min(self._looks_at, boottime() + LOOK)
        bundle.take_out(strand)
        if not strand.due:
            strand.close()

    def closes(self, strand: Strand) -> None:
        """What it carried may not have arrived, or may still arrive."""
        if strand.claims:
            self._nodes[strand.node].server.closed[strand] = None
        for due in list(strand.due):
            self.lose(strand.node, due.request)

    def is_forgotten(self, node: int, due: Due, replies: Sequence[Any]) -> bool:
        """The node had no script for it, so it was not done. A clean-up is lost then, whoever reads this: nobody may
        want its answer any more. It is called before `due` is taken out, because an interrupt may come between."""
        if due.is_full or not self._wording.forgot(replies):
            return False
        self.lose(node, due.request)
        return True

    def lose(self, node: int, request: Request | bytes) -> None:
        """If it cleans up, it is sent again when there is a connection."""
        if isinstance(request, bytes):
            self._lost[node].append(request)
        elif polls.only_cleans(request):
            self._lost[node].extend([self._wording.in_full(part, b"") for part in polls.parts_of(request)])

    def send_lost(self, bundle: Bundle) -> None:
        """Where it has a connection. Twice does no harm, so two threads may do it at the same time. A few at a time: a
        node does not have to take more at once than the system keeps for it."""
        for lost, strand in zip(self._lost, bundle.strands, strict=True):
            if strand is not None:
                for clean_up in list(lost)[:LOST_AT_ONCE]:
                    if not self._send_after(strand, clean_up):
                        break
                    remove(lost, clean_up)

    def _close_the_answered(self) -> None:
        """One thread at a time: no two may read one connection."""
        self._looks_at = boottime() + LOOK  # first: an interrupt may come
        for node in self._nodes:
            node.server.close_parked(self._is_over)

    def _is_over(self, strand: Strand) -> bool:
        strand.looks += self._nodes[strand.node].trouble is None
        return strand.is_over() or strand.looks > LOOKS_MOST

    def close(self) -> None:
        """What is still under way closes its own."""
        self._idle_most = 0
        while self._idle:
            try:
                loan = self._idle.popitem()[1]
            except KeyError:
                break
            self._dismiss(loan.bundle)


def _frees(requests: Sequence[Request | None]) -> dict[Free, None]:
    """Each of them once."""
    parts = [part for request in requests if request is not None for part in polls.parts_of(request)]
    return dict.fromkeys(part for part in parts if type(part) is Free)
