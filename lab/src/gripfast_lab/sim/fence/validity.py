"""Redlock's locks without its tokens, in a world where clocks keep their promise and nodes may forget: do two hold one?

This is what the clauses are for that tokens do not need: when a lock may be taken back, what a renewal counts, whose
lock a release removes, and the birth marker. Tokens are left out: where a fence would refuse something it is done here.

    Claim     if the lock is free or mine, and the node is not in its grace: take it. A majority: held.
    Renewal   if the lock is mine: yes. A majority: held for longer.
    Take-back only after a renewal by a majority: if the lock is absent, and the node is not in its grace: take it. It
              counts when the next renewal finds it.
    Release   if the lock is mine: remove it.
    Birth     a node that has forgotten everything is in its grace until every validity is over that began before.

What must hold: two attempts never hold the lock at once.

Time is not counted. A holder's validity is dated by the sending of the last round that a majority answered. So the lock
on a node that got that round, or anything later, outlives the validity; others expire at any moment. An attempt has
its validity from its first claim on. Attempt and lease are over at any moment, of their own will or by the clock; that
is final. A grace lasts until all those under way at the birth are over, or were renewed by a round that was sent after
it: a real one of `max_ttl` lasts longer.

Why the grace is also closed to take-backs: an attempt may still count the vote that the node gave it and forgot. If a
lease takes that node and counts it, too, the two have their majorities.

Requests of one attempt to one node arrive in order or not at all, late or twice, and replies are lost. Claims and
take-backs that arrive after their attempt is over are left out: they would only be in the way of others. A round begins
with the first of its requests that arrives, and it is decided with the reply that makes a majority: an earlier
beginning or a later decision could only shorten someone's validity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

Node = tuple[int, int, tuple[int, ...], tuple[bool, ...], tuple[int, ...]]
"""Owner; the last round of its owner that set or prolonged the lock; for each attempt what of it may still arrive,
whether it has heard this node in its present round, and whether the node's grace waits for it."""
Lease = tuple[int, int, bool]
"""Phase; rounds that counted; whether a further one is under way."""
State = tuple[tuple[Node, ...], tuple[Lease, ...], int]
"""Nodes, leases, how often a node may still forget."""
Label = tuple[str, int, int]
Steps = Iterator[tuple[Label, State]]

IDLE, CLAIMS, HOLDS, OVER = range(4)
NOTHING, CLAIM, TAKE_BACK, RELEASE = range(4)
NOT_FOR_ME, FOR_ME, UNTIL_RENEWED = range(3)
NOBODY = -1

_T = TypeVar("_T")


@dataclass
class Validity:
    attempts: int = 2
    rounds: int = 1
    forgets: int = 1
    nodes: int = 3
    merging: bool = False
    name: str = "fence-time"

    def __post_init__(self) -> None:
        self.majority = self.nodes // 2 + 1

    # The rule --------------------------------------------------------------------------------------------------------

    def may_claim(self, is_in_grace: bool) -> bool:
        return not is_in_grace

    def may_take_back(self, is_in_grace: bool) -> bool:
        return not is_in_grace

    def says_yes_to_renewal(self, is_owner: bool, is_free: bool, is_in_grace: bool) -> bool:
        return is_owner

    def takes_back_after(self, yes: int) -> bool:
        return yes >= self.majority

    def may_release(self, is_owner: bool) -> bool:
        return is_owner

    def is_waited_for(self, is_under_way: bool) -> bool:
        """By the grace of a node that was born just now."""
        return is_under_way

    # What is wrong ---------------------------------------------------------------------------------------------------

    def wrong(self, state: State) -> str | None:
        holders = [_name(me) for me, lease in enumerate(state[1]) if lease[0] == HOLDS]
        return f"overlap: {' and '.join(holders)} hold the lock" if len(holders) > 1 else None

    # What can happen -------------------------------------------------------------------------------------------------

    def starts(self) -> Iterator[State]:
        none = (NOTHING,) * self.attempts
        node: Node = (NOBODY, 0, none, (False,) * self.attempts, (NOT_FOR_ME,) * self.attempts)
        yield (node,) * self.nodes, ((IDLE, 0, False),) * self.attempts, self.forgets

    def steps(self, state: State) -> Steps:
        _, leases, forgets = state
        for me, (phase, counted, asks) in enumerate(leases):
            if phase == IDLE:
                yield from self._begin(state, me)
                break
            if phase == HOLDS and not asks and counted < self.rounds:
                yield from self._begin_round(state, me)
            if phase != OVER:
                yield ("over", me, 0), self._over(state, me)
            for place in range(self.nodes):
                yield from self._arrivals(state, me, place)
        if forgets:
            for place in range(self.nodes):
                yield ("birth", 0, place), self._reborn(state, place)

    def _begin(self, state: State, me: int) -> Steps:
        nodes, leases, forgets = state
        asked = tuple(_coming(node, me, CLAIM) for node in nodes)
        begun = asked, _put(leases, me, (CLAIMS, 0, False)), forgets
        for place in range(self.nodes):
            yield from self._take(begun, me, place)

    def _begin_round(self, state: State, me: int) -> Steps:
        nodes, leases, forgets = state
        dated_anew = tuple(
            (*node[:4], _put(node[4], me, UNTIL_RENEWED)) if node[4][me] == FOR_ME else node for node in nodes
        )
        begun = dated_anew, _put(leases, me, (HOLDS, leases[me][1], True)), forgets
        for place in range(self.nodes):
            yield from self._renew(begun, me, place)

    def _arrivals(self, state: State, me: int, place: int) -> Steps:
        nodes, leases, forgets = state
        node = nodes[place]
        owner, since, coming, heard, _ = node
        phase, counted, asks = leases[me]
        if coming[me] in (CLAIM, TAKE_BACK):
            yield from self._take(state, me, place)
        if asks and not heard[me]:
            yield from self._renew(state, me, place)
        if coming[me] == RELEASE and owner != NOBODY and self.may_release(owner == me):
            free = _coming(_freed(node), me, NOTHING)
            yield ("release", me, place), self._merged(_put(nodes, place, free), leases, forgets)
        if owner == me and phase == HOLDS and since < counted:
            yield ("expiry", me, place), self._merged(_put(nodes, place, _freed(node)), leases, forgets)

    def _take(self, state: State, me: int, place: int) -> Steps:
        """A claim or a take-back arrives."""
        nodes, leases, forgets = state
        owner, _, coming, heard, waits = nodes[place]
        phase, counted, asks = leases[me]
        may_take = self.may_claim if coming[me] == CLAIM else self.may_take_back
        if owner not in (NOBODY, me) or not may_take(any(waits)):
            return
        node = (me, counted + asks, coming, heard, waits)
        if phase == HOLDS:
            what = "late claim" if coming[me] == CLAIM else "take-back"
            yield (what, me, place), self._merged(_put(nodes, place, _coming(node, me, NOTHING)), leases, forgets)
            return
        if node != nodes[place]:
            yield ("claim, unheard", me, place), self._merged(_put(nodes, place, node), leases, forgets)
        nodes = _put(nodes, place, _coming(_heard(node, me, True), me, NOTHING))
        if sum(node[3][me] for node in nodes) < self.majority:
            yield ("claim", me, place), self._merged(nodes, leases, forgets)
            return
        nodes = tuple(_heard(node, me, False) for node in nodes)
        yield ("claim, held", me, place), self._merged(nodes, _put(leases, me, (HOLDS, 0, False)), forgets)

    def _renew(self, state: State, me: int, place: int) -> Steps:
        nodes, leases, forgets = state
        owner, _, _, _, waits = nodes[place]
        if not self.says_yes_to_renewal(owner == me, owner == NOBODY, any(waits)):
            return
        counted = leases[me][1] + 1
        node = _coming((me, counted, *nodes[place][2:]), me, NOTHING)
        if node != nodes[place]:
            yield ("renewal, unheard", me, place), self._merged(_put(nodes, place, node), leases, forgets)
        nodes = _put(nodes, place, _heard(node, me, True))
        yes = sum(node[3][me] for node in nodes)
        if self.takes_back_after(yes):
            nodes = tuple(node if node[0] == me else _coming(node, me, TAKE_BACK) for node in nodes)
        if yes < self.majority:
            yield ("renewal", me, place), self._merged(nodes, leases, forgets)
            return
        nodes = tuple(_renewed(node, me) for node in nodes)
        yield ("renewal, held", me, place), self._merged(nodes, _put(leases, me, (HOLDS, counted, False)), forgets)

    def _over(self, state: State, me: int) -> State:
        nodes, leases, forgets = state
        left = (
            (owner, 0 if owner == me else since, _put(coming, me, RELEASE), _put(heard, me, False), _put(waits, me, 0))
            for owner, since, coming, heard, waits in nodes
        )
        return self._merged(tuple(left), _put(leases, me, (OVER, 0, False)), forgets)

    def _reborn(self, state: State, place: int) -> State:
        nodes, leases, forgets = state
        _, _, coming, heard, _ = nodes[place]
        is_waited_for = [self.is_waited_for(phase in (CLAIMS, HOLDS)) for phase, _, _ in leases]
        waits = tuple(FOR_ME if is_waited else NOT_FOR_ME for is_waited in is_waited_for)
        return self._merged(_put(nodes, place, (NOBODY, 0, coming, heard, waits)), leases, forgets - 1)

    def _merged(self, nodes: tuple[Node, ...], leases: tuple[Lease, ...], forgets: int) -> State:
        """One node is as good as another: unless the path is to be told."""
        return tuple(sorted(nodes)) if self.merging else nodes, leases, forgets

    def tell(self, label: Label) -> str:
        what, me, place = label
        if what == "birth":
            return f"node {place + 1} forgets everything"
        return f"{_name(me)} is over" if what == "over" else f"node {place + 1}, {_name(me)}: {what}"


def _coming(node: Node, me: int, what: int) -> Node:
    owner, since, coming, heard, waits = node
    return owner, since, _put(coming, me, what), heard, waits


def _heard(node: Node, me: int, is_heard: bool) -> Node:
    owner, since, coming, heard, waits = node
    return owner, since, coming, _put(heard, me, is_heard), waits


def _renewed(node: Node, me: int) -> Node:
    owner, since, coming, heard, waits = _heard(node, me, False)
    return owner, since, coming, heard, _put(waits, me, NOT_FOR_ME) if waits[me] == UNTIL_RENEWED else waits


def _freed(node: Node) -> Node:
    return NOBODY, 0, *node[2:]


def _put(values: tuple[_T, ...], place: int, value: _T) -> tuple[_T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _name(me: int) -> str:
    return "ABCDE"[me]
