"""Who has which bundle of connections, and how clean-ups follow claims on bundles that others have.

On which connections a clean-up has to follow, each node's `LentServer` knows. A clean-up goes out on the bundle that
carried what it cleans up, if that is idle; otherwise it follows there in one of three ways (`follow_on`).

An interrupt may come at any instruction. So there is no mutex, and a bundle that was dropped by an interrupt is used by
nobody again, except that clean-ups follow on it.
"""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from gripfast.core.redlock.nodes import Request
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import IDLE_MOST
from gripfast.stores.redlock import polls
from gripfast.stores.redlock.bundle import Bundle, Dropped, Loan
from gripfast.stores.redlock.health import Losses, Node
from gripfast.stores.redlock.lent import LentConversation
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.talk import Health, NodeTalk

LOOK = 0.25
"""Seconds between two looks at connections on which nothing is asked any more."""
LOOKS_MOST = 4
"""Looks at a connection to a node that answers on others: it has read by then what was sent."""


class Pool:
    def __init__(
        self,
        nodes: Sequence[Node],
        wording: Wording,
        inboxes: Inboxes,
        down: set[Health],
        losses: Losses,
        beside: Sequence[NodeTalk] | None,
    ) -> None:
        """`beside`: where claims were sent whose clean-ups are sent here; then no bundle is kept."""
        self._nodes = nodes
        self._losses = losses
        self._has_beside = beside is not None
        self._new_bundle = functools.partial(
            Bundle, weakref.proxy(self), nodes, wording, inboxes, down, beside or [None] * len(nodes)
        )
        self._idle: OrderedDict[Bundle, Loan] = OrderedDict()
        """In the order in which they came back. Those that are longest here go first: an owner is soon done with."""
        self._idle_most = 0 if self._has_beside else IDLE_MOST
        self._loans: dict[Bundle, Dropped] = {}
        self.dropped: deque[Dropped] = deque()
        """By interrupts: whoever comes next picks them up."""
        self._lost: Sequence[deque[bytes]] = [node.lost for node in nodes]
        self._looks_at = 0.0
        """When to look whether any of those on which nothing is asked any more can be closed."""
        self._looking = Guard()
        self._picking = Guard()

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
        now = boottime()
        if now >= bundle.timers.next_at:
            bundle.catch_up(now)
        if bundle.era is not self._losses.latest:
            bundle.era = self._losses.latest
            bundle.look_through()
        if now >= self._looks_at:
            self._looking.run_if_free(self._close_parked)
        if any(self._lost):
            self._send_lost(bundle)
        return loan

    def _new_loan(self) -> Loan:
        bundle = self._new_bundle()
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

    def pick_up(self) -> None:
        """What interrupts have dropped. One thread at a time, and whoever comes meanwhile leaves it to that one."""
        self._picking.run_if_free(self._pick_up)

    def _pick_up(self) -> None:
        """Each is taken out last: if another interrupt comes, it is done again."""
        while self.dropped:
            dropped = self.dropped[0]
            bundle: Bundle | None = getattr(dropped, "bundle", None)
            if bundle is not None:  # else the interrupt came before it was lent to anyone
                self._dismiss(bundle)
                self._loans.pop(bundle, None)
            self.dropped.remove(dropped)

    def _dismiss(self, bundle: Bundle) -> None:
        bundle.is_dropped = True  # first: who has left something looks at it afterwards
        self._send_left(bundle)
        bundle.talk.dismiss()
        for conversation in list(bundle.by_fd.values()):  # an interrupt came before the talk had it
            conversation.leave()

    # -- clean-ups -----------------------------------------------------------------------------------------------

    def must_follow(self, conversations: Mapping[int, LentConversation], clean_up: Request) -> bool:
        """Claims of its owners may be unanswered on others than these."""
        if self._has_beside:
            return True
        if sum([len(node.server.conversations) for node in self._nodes]) == len(conversations):
            return False  # as nearly always, if one thread alone asks
        owners = [part.owner for part in polls.parts_of(clean_up)]  # type: ignore[union-attr] # each has one
        unanswered = [
            each
            for node in self._nodes
            for each in list(node.server.conversations)
            for owner in owners
            if owner in each.claims
        ]
        return any(conversations.get(each.fd) is not each for each in unanswered)

    def follow_on(self, conversation: LentConversation, packed: bytes, ended: str | None) -> bool:
        """From any thread. Two must not write at a time, so this depends on who has the bundle. True if it left.

        It is idle: whoever takes it out may write, and puts it back. It is lent: this is left for who has it to send,
        before it goes back. Nobody uses it, or not this connection, ever again: whoever has to may write.
        """
        bundle = conversation.bundle()
        loan = None if bundle is None else self._idle.pop(bundle, None)
        if bundle is None or loan is not None or not bundle.lends(conversation):
            left = conversation.send_after(packed, ended, is_mine=loan is not None)
        else:
            left = True
            bundle.after.append((conversation, packed, ended))
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
            conversation, packed, ended = left
            conversation.send_after(packed, ended, is_mine=not bundle.is_dropped)
            try:
                bundle.after.remove(left)
            except ValueError:  # another thread was quicker
                pass

    def _send_lost(self, bundle: Bundle) -> None:
        """Where it has a connection."""
        for talk in bundle.talk.talks:
            if talk.node.lost and (conversation := talk.requests.connection) is not None:
                talk.node.send_lost(conversation)

    # -- connections ---------------------------------------------------------------------------------------------

    def _close_parked(self) -> None:
        self._looks_at = boottime() + LOOK  # first: an interrupt may come
        for node in self._nodes:
            node.server.close_parked(self._is_over)

    def _is_over(self, conversation: LentConversation) -> bool:
        conversation.looks += conversation.node.trouble is None
        return conversation.looks > LOOKS_MOST

    def close(self) -> None:
        """What is still under way closes its own."""
        self._idle_most = 0
        while self._idle:
            try:
                loan = self._idle.popitem()[1]
            except KeyError:
                break
            self._dismiss(loan.bundle)
