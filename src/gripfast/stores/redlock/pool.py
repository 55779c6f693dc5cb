"""Who has which bundle of connections, and that no request overtakes another of the same owner that it cleans up.

A clean-up goes out on the bundle that carried what it cleans up. If that is lent to somebody else, it goes out on
another one, and is also left there, for whoever gives it back to send it after. If the node was given up for lost
meanwhile, it is sent after on the old connection, which is kept for that.

An interrupt may come at any instruction. So there is no mutex, and a bundle that was dropped by an interrupt is used by
nobody again, except that clean-ups follow on it.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gripfast.core.redlock.nodes import Each, Free, Request, TakeBack, Unlock, Vote
from gripfast.machine import boottime
from gripfast.stores.redis.conversation import IDLE_MOST, PARKED_MOST
from gripfast.stores.redlock.bundle import Bundle, Dropped, Due, Loan, Strand
from gripfast.stores.redlock.health import Known, Node
from gripfast.stores.redlock.polls import only_cleans, setter
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.talk import LOST_MOST

T = TypeVar("T")

LOOK = 0.25
"""Seconds between two looks at those."""
LOOKS_MOST = 4
"""Looks at a connection to a node that answers on others: nothing will come any more. An interrupt may do that."""
LOST_AT_ONCE = 50
"""Lost clean-ups that one request takes along."""
CARRIED_LEAST = 1024
"""Owners of whom it is remembered what carried their requests, before somebody looks whether that still matters."""


Followed = Mapping[tuple[str, int], bool]
"""By owner and node: a clean-up had to follow a claim on another connection, and whether it could."""


class Pool:
    def __init__(
        self,
        nodes: Sequence[Node],
        known: Known,
        wording: Wording,
        chase: Callable[[Free], Sequence[bool | None]] | None,
        keeps_bundles: bool,
    ) -> None:
        self._nodes = nodes
        self._known = known
        self._wording = wording
        self._chase = chase
        self._idle: OrderedDict[Bundle, Loan] = OrderedDict()
        """In the order in which they came back. Those that are longest here go first: an owner is soon done with."""
        self._idle_most = IDLE_MOST if keeps_bundles else 0
        self._loans: dict[Bundle, Dropped] = {}
        self.dropped: deque[Dropped] = deque()
        """By interrupts: whoever comes next picks them up."""
        self._carriers: dict[str, Bundle] = {}
        """By owner: what carried the last request of theirs that may have set something."""
        self._carried_most = CARRIED_LEAST
        self._late: dict[str, list[Bundle | Strand]] = {}
        """By owner: what else did, and was not answered there: another bundle, or the connection to a silent node."""
        self._lost: list[deque[Request]] = [deque(maxlen=LOST_MOST) for _ in nodes]
        """Clean-ups that were not answered when their connection broke."""
        self._has_lost = False
        self._parked: list[deque[Strand]] = [deque() for _ in nodes]
        self._looks_at = math.inf
        """When to look whether any of those was answered."""

    def borrow(self, request: Request) -> Loan:
        """For the owner of this request, if it has one: best of all what carried the last one."""
        owner: str | None = getattr(request, "owner", None)
        carrier = None if owner is None else self._carriers.get(owner)
        loan = None if carrier is None else self._idle.pop(carrier, None)
        if loan is None:
            try:
                loan = self._idle.popitem(last=False)[1]
            except KeyError:
                loan = self._new_loan()
        bundle = loan.bundle
        bundle.user = owner
        if bundle.version is not self._known.version:
            self._look_through(bundle)
        if self._looks_at < math.inf and boottime() >= self._looks_at:
            self._close_the_answered()
        if self._has_lost:
            self._send_lost(bundle)
        return loan

    def _new_loan(self) -> Loan:
        bundle = Bundle(len(self._nodes))
        loan = Loan(bundle)
        dropped = Dropped(loan, self.dropped.append)
        dropped.bundle = bundle
        self._loans[bundle] = dropped
        return loan

    def put_back(self, loan: Loan) -> None:
        """Whoever leaves something to be sent looks afterwards whether it came back; so does this, the other way."""
        bundle = loan.bundle
        bundle.user = None
        while len(self._idle) < self._idle_most:
            self._idle[bundle] = loan
            if not bundle.after and self._idle_most:
                return
            if self._idle.pop(bundle, None) is None:
                return
            self._send_left(bundle)
        self._dismiss(bundle)

    def _dismiss(self, bundle: Bundle) -> None:
        bundle.is_dismissed = True  # first: who has left something looks at it afterwards
        self._send_left(bundle)
        for strand in bundle.strands:
            if strand is not None:
                self.let_go(bundle, strand)

    def pick_up(self) -> None:
        """What interrupts have dropped."""
        while True:
            try:
                dropped = self.dropped.popleft()
            except IndexError:
                break
            bundle: Bundle | None = getattr(dropped, "bundle", None)
            if bundle is not None:  # else the interrupt came before it was lent to anyone
                self._dismiss(bundle)
                self._loans.pop(bundle, None)

    def _look_through(self, bundle: Bundle) -> None:
        """Something has changed: connections to nodes that were given up for lost since they were made are not used."""
        bundle.version = self._known.version
        for strand in list(bundle.strands):
            if strand is not None and strand.era is not self._nodes[strand.node].era:
                self.let_go(bundle, strand)

    # -- order ---------------------------------------------------------------------------------------------------

    def carry(self, request: Request, bundle: Bundle) -> tuple[str, ...]:
        """Remember what carries it, before it leaves. Whose clean-up has to follow it."""
        if type(request) is Vote or type(request) is TakeBack:
            owners: tuple[str, ...] = (request.owner,)
        elif type(request) is Each:
            owners = tuple(owner for each in request.requests if (owner := setter(each)) is not None)
        else:
            return ()
        for owner in owners:
            before = self._carriers.get(owner)
            if before is not bundle:
                if before is not None and before.owes(owner):
                    self._late.setdefault(owner, []).append(before)
                self._carriers[owner] = bundle
        if len(self._carriers) > self._carried_most:
            self._forget_the_answered()
        return owners

    def _forget_the_answered(self) -> None:
        """Not every owner says when it is done; where everything was answered, nothing has to follow."""
        for owner, bundle in self._carriers.copy().items():
            places = [bundle, *self._late.get(owner, ())]
            if bundle.user != owner and not any(place.owes(owner) for place in places):
                self._carriers.pop(owner, None)
                self._late.pop(owner, None)
        self._carried_most = max(CARRIED_LEAST, 2 * len(self._carriers))

    def follow(self, requests: Sequence[Request | None], bundle: Bundle) -> Followed:
        """Let clean-ups follow what other connections than this bundle's have carried for their owners."""
        followed: dict[tuple[str, int], bool] = {}
        for clean_up in _clean_ups(requests):
            owner = clean_up.owner
            if self._chase is not None and type(clean_up) is Free:
                chased = enumerate(self._chase(clean_up))
                followed |= {(owner, node): left for node, left in chased if left is not None}
            for strand, carrier in self._debtors(owner, bundle).items():
                if carrier is None:
                    has_left = self._send_after(strand, clean_up)
                else:
                    has_left = self._follow_on(carrier, strand, owner, clean_up)
                followed[owner, strand.node] = has_left and followed.get((owner, strand.node), True)
            if type(clean_up) is Free:
                self._carriers.pop(owner, None)
                self._late.pop(owner, None)
        return followed

    def _debtors(self, owner: str, here: Bundle) -> Mapping[Strand, Bundle | None]:
        """Other connections on which claims of this owner are unanswered, and their bundles; None if it is parked.

        Bundles come first: what is parked by another thread meanwhile is noted before it is taken out of its bundle.
        """
        carrier = self._carriers.get(owner)
        if (carrier is None or carrier is here) and not self._late:
            return {}
        places = [*self._late.get(owner, ()), carrier]
        bundles = [each for each in places if isinstance(each, Bundle) and each is not here]
        debtors: dict[Strand, Bundle | None] = {strand: each for each in bundles for strand in each.debtors(owner)}
        for each in self._late.get(owner, ()):
            if isinstance(each, Strand) and each.owes(owner):
                debtors.setdefault(each, None)
        return debtors

    def _follow_on(self, bundle: Bundle, strand: Strand, owner: str, clean_up: Request) -> bool:
        """Two must not write at a time, so this depends on who has the bundle: nobody, another one, or nobody ever
        again. True if it left, or will."""
        loan = self._idle.pop(bundle, None)
        is_lent = loan is None and bundle.user != owner and not bundle.is_dismissed
        has_left = True
        if is_lent:
            bundle.after.append((strand, owner, clean_up))
            loan = self._idle.pop(bundle, None)  # it may have come back meanwhile, or have been dropped, or dismissed
            if bundle.is_dismissed:
                self._send_left(bundle)
            elif loan is None and self.dropped:
                self.pick_up()
        else:  # nobody uses it: if it is not idle, an interrupt has ended this owner's own poll
            has_left = self._send_after(strand, clean_up)
        if loan is not None:
            self.put_back(loan)
        return has_left

    def _send_left(self, bundle: Bundle) -> None:
        """What others have left to be sent after. Twice does no harm."""
        for left in list(bundle.after):
            strand, owner, clean_up = left
            if strand.owes(owner):
                self._send_after(strand, clean_up)
            _remove(bundle.after, left)

    def _send_after(self, strand: Strand, clean_up: Request) -> bool:
        due = Due(self._wording.count(clean_up), boottime(), None, clean_up, ())
        return strand.send_after(self._wording.in_full(clean_up, b""), due)

    def let_go(self, bundle: Bundle, strand: Strand) -> None:
        """Nothing is asked on it any more. It is kept until it was answered: a clean-up may have to follow on it, and a
        node that finds it closed would drop what it has not read yet, of which only a part may be a clean-up."""
        if strand.due:
            self._park(strand, self._owners_to_follow(strand))
        bundle.take_out(strand)
        if not strand.due:
            strand.close()

    def is_cut(self, bundle: Bundle, strand: Strand) -> None:
        """Nothing can follow on it, and what it carried may still arrive: its owners have to know."""
        for owner in self._owners_to_follow(strand):
            self._late.setdefault(owner, []).append(strand)
        bundle.take_out(strand)
        self._close(strand)

    def leave(self, bundle: Bundle, clean_up: Request, nodes: Iterable[int]) -> None:
        """Where there is no connection now, for when there is one again."""
        for node in nodes:
            if bundle.strands[node] is None:
                self._lose(node, clean_up)

    def put(self, bundle: Bundle, strand: Strand) -> None:
        bundle.put(strand)
        if self._has_lost:
            self._send_lost(bundle)

    def _lose(self, node: int, clean_up: Request) -> None:
        self._lost[node].append(clean_up)
        self._has_lost = True  # last: who finds it true looks afterwards

    def _send_lost(self, bundle: Bundle) -> None:
        """Where it has a connection. Twice does no harm, so two threads may do it at the same time. A few at a time: a
        node does not have to take more at once than the system keeps for it."""
        for lost, strand in zip(self._lost, bundle.strands, strict=True):
            if strand is not None:
                for clean_up in list(lost)[:LOST_AT_ONCE]:
                    self._send_after(strand, clean_up)
                    _remove(lost, clean_up)
        self._has_lost = any(self._lost)
        if any(self._lost):  # meanwhile
            self._has_lost = True

    def _close(self, strand: Strand) -> None:
        """What it carried may not have arrived."""
        for due in list(strand.due):
            if only_cleans(due.request):
                self._lose(strand.node, due.request)
        strand.close()

    def _owners_to_follow(self, strand: Strand) -> set[str]:
        return {owner for due in list(strand.due) for owner in due.owners if owner in self._carriers}

    def _park(self, strand: Strand, owners: Iterable[str]) -> None:
        parked = self._parked[strand.node]
        parked.append(strand)
        self._looks_at = min(self._looks_at, boottime() + LOOK)
        for owner in owners:
            self._late.setdefault(owner, []).append(strand)
        while len(parked) > (0 if self._known.is_closed else PARKED_MOST):
            self._close_first(parked)

    def _close_the_answered(self) -> None:
        """Whoever has taken a connection out of its deque has it alone."""
        self._looks_at = math.inf
        for parked in self._parked:
            for _ in range(len(parked)):
                try:
                    strand = parked.popleft()
                except IndexError:  # another thread was quicker
                    break
                strand.looks += self._nodes[strand.node].is_up
                if strand.is_over() or strand.looks > LOOKS_MOST:
                    self._close(strand)
                else:
                    self._looks_at = boottime() + LOOK
                    parked.append(strand)

    def close(self) -> None:
        """What is still under way closes its own."""
        self._idle_most = 0
        while self._idle:
            try:
                loan = self._idle.popitem()[1]
            except KeyError:
                break
            self._dismiss(loan.bundle)
        self._carriers.clear()
        self._late.clear()
        for parked in self._parked:
            while parked:
                self._close_first(parked)

    def _close_first(self, parked: deque[Strand]) -> None:
        try:
            strand = parked.popleft()
        except IndexError:  # another thread was quicker
            return
        self._close(strand)


def _remove(queue: deque[T], item: T) -> None:
    try:
        queue.remove(item)
    except ValueError:  # another thread was quicker
        pass


def _clean_ups(requests: Sequence[Request | None]) -> Iterable[Free | Unlock]:
    """Each of them once."""
    first = requests[0]
    if type(first) is Free or type(first) is Unlock:
        return (first,)
    once = {id(request): request for request in requests}.values()
    parts = [part for each in once for part in (each.requests if isinstance(each, Each) else (each,))]
    return dict.fromkeys(part for part in parts if isinstance(part, Free | Unlock))
