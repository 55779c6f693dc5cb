"""Redlock's fencing rule in a world where nothing can be relied on but the nodes' memory: do tokens grow?

The rule, clause by clause, is the first part of Fence. It is stated anew and imports nothing of the real thing.

    Each node has a lock, and a fence: the largest token that it has accepted, and who wrote it.
    Round 1   if the lock is free or mine: take it; accept p if p > fence, or p = fence and I wrote it: fence := p.
              A majority accepted: granted with p.
    Round 2   if a majority was locked, t = largest fence heard + 1, to the locked nodes: if the lock is mine, and
              t > fence or t = fence and I wrote it: fence := t. A majority accepted: granted with t.
    Take-back if the lock is absent and fence <= token: take it, fence := token.

What must hold, in every state:

    token     Two grants never have one token. Whoever began after a grant was decided has a larger token.
    order     On a node whose vote two grants have, whoever took that node later has the larger token. A take-back is a
              vote. (Only looked at if `ordered`: it needs a longer memory.)

A grant that was renewed has the first rule's promise all the longer: its renewals are decided after itself.

Everything is up to chance that could be: proposals are any small numbers, requests arrive in any order, twice or never,
replies are lost, and a lock expires at any moment. Why so few kinds of steps are enough for that:

- An expiry is not a step. A lock is in nobody's way, since it may have expired just before: so the node's owner is
  whoever took it last. A lock that expires and is not taken only makes its owner's requests fail: they may as well be
  lost.
- A release, if it looks at the owner, is an expiry. A renewal changes no node. Giving up is that nothing more arrives.
- An attempt begins with the arrival of its first request, and a grant is decided with the reply that makes it one.
  Earlier beginnings and later decisions would only put fewer grants before others. For the same reason a reply is
  heard at once or never; one that would come late is heard when the request arrives once more.
- Round 2 begins with its first arrival. What a client hears in between, it may as well not have heard.
- A claim that is neither accepted nor heard is left out: it only takes the lock from somebody, as an expiry does.
- A client that tries again is another attempt: it has a new owner id, and any proposal. `at_once` bounds how many
  attempts have requests on their way; if a further one begins, no more arrives from one of those.
- A take-back may come at any time after the grant. That it follows a majority's yes, and counts later, is more than
  tokens need; `validity` is about that.

If `merging`, states that differ only in the names of nodes and attempts are one; so are states that differ in grants
that no longer matter: of a lease for which no node has a smaller fence, and of tokens that no attempt under way could
repeat without breaking the rule of real time as well. This is right for the rule itself and not for each wrong one, and
a path through it makes no sense to a reader, since the nodes change their names on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Tenure = tuple[int, int]
"""Who took the node, and the token it voted for while that was its last owner's tenure; 0 is none."""
Node = tuple[int, int, int, tuple[int, ...], tuple[Tenure, ...]]
"""Fence, who wrote it, owner, what each attempt has heard from here, tenures."""
Attempt = tuple[int, int, int, int]
"""Phase, proposal; largest fence heard, then token of round 2, then token granted; largest token given before."""
State = tuple[tuple[Node, ...], tuple[Attempt, ...], tuple[int, ...], int]
"""Nodes, attempts, tokens given, attempts begun."""
Label = tuple[int, str, int, int, str]
"""Who, what, which token, on which node, with what outcome."""
Steps = Iterator[tuple[Label, State]]

IDLE, FIRST, SECOND, GRANTED = range(4)
UNHEARD, LOCKED, ACCEPTED = range(3)
NOBODY = -1

_IDLE: Attempt = (IDLE, 0, 0, 0)
_T = TypeVar("_T")


@dataclass
class Fence:
    attempts: int = 2
    at_once: int = 2
    proposals: Sequence[int] = (0, 1, 2)
    nodes: int = 3
    ordered: bool = False
    merging: bool = False
    name: str = "fence"

    def __post_init__(self) -> None:
        self.majority = self.nodes // 2 + 1
        if self.ordered and self.attempts > self.at_once:
            raise ValueError("an order of attempts needs each of them to have its own name")

    # The rule --------------------------------------------------------------------------------------------------------

    def accepts(self, token: int, fence: int, has_written: bool) -> bool:
        return token > fence or (token == fence and has_written)

    def fence_after_claim(self, proposal: int, fence: int, has_written: bool) -> int | None:
        """None: locked, but not accepted."""
        return proposal if self.accepts(proposal, fence, has_written) else None

    def is_granted_at_first(self, locked: int, accepted: int) -> bool:
        return accepted >= self.majority

    def first_token(self, proposal: int, largest_heard: int) -> int:
        return proposal

    def is_open_to_second(self, is_owner: bool) -> bool:
        return is_owner

    def is_granted_at_second(self, accepted: int) -> bool:
        return accepted >= self.majority

    def may_take_back(self, token: int, fence: int) -> bool:
        return fence <= token

    def fence_after_take_back(self, token: int, fence: int) -> int:
        return token

    # What is wrong ---------------------------------------------------------------------------------------------------

    def wrong(self, state: State) -> str | None:
        nodes, attempts, tokens, _ = state
        if len(tokens) > 1 and len(set(tokens)) < len(tokens):
            return f"token: given twice, of {tokens}"
        for me, (phase, _, token, before) in enumerate(attempts):
            if phase == GRANTED and 0 < token <= before:
                return f"token: {_name(me)} has {token} and began after {before} was given"
        return self._disorder(nodes, attempts) if self.ordered else None

    def _disorder(self, nodes: tuple[Node, ...], attempts: tuple[Attempt, ...]) -> str | None:
        for place, node in enumerate(nodes, 1):
            earlier, smaller = NOBODY, 0
            for me, vote in node[4]:
                phase, _, token, _ = attempts[me]
                if phase != GRANTED or vote != token or me == earlier:
                    continue
                if token <= smaller:
                    later = f"{_name(me)} with {token} came after {_name(earlier)} with {smaller}"
                    return f"order: on node {place}, {later}"
                earlier, smaller = me, token
        return None

    # What can happen -------------------------------------------------------------------------------------------------

    def starts(self) -> Iterator[State]:
        node: Node = (0, NOBODY, NOBODY, (UNHEARD,) * self.at_once, ())
        yield (node,) * self.nodes, (_IDLE,) * self.at_once, (), 0

    def steps(self, state: State) -> Steps:
        nodes, attempts, _, begun = state
        places = self._places(nodes)
        for me, (phase, *_) in enumerate(attempts):
            if phase == IDLE:
                continue
            for place in places:
                if phase == GRANTED:
                    yield from self._take_back(state, me, place)
                if phase == GRANTED or nodes[place][3][me] == UNHEARD:
                    yield from self._claim(state, me, place)
                else:
                    yield from self._second(state, me, place)
        if begun < self.attempts:
            yield from self._begin(state, places)

    def _places(self, nodes: tuple[Node, ...]) -> Sequence[int]:
        """If two nodes are the same, it is all one where something happens."""
        if not self.merging:
            return range(self.nodes)
        return [place for place in range(self.nodes) if not place or nodes[place] != nodes[place - 1]]

    def _begin(self, state: State, places: Sequence[int]) -> Steps:
        nodes, attempts, tokens, begun = state
        idle = [me for me, attempt in enumerate(attempts) if attempt[0] == IDLE]
        before = tokens[-1] if tokens else 0
        for me in idle[:1] or range(self.at_once):
            forgotten = tuple(_without(node, me) for node in nodes)
            for proposal in self.proposals:
                begins = (forgotten, _put(attempts, me, (FIRST, proposal, 0, before)), tokens, begun + 1)
                for place in places:
                    yield from self._claim(begins, me, place)

    def _claim(self, state: State, me: int, place: int) -> Steps:
        nodes, attempts, tokens, begun = state
        fence, writer, _, heard, tenures = nodes[place]
        phase, proposal, _, _ = attempts[me]
        after = self.fence_after_claim(proposal, fence, writer == me)
        if self.ordered:
            tenures = _taken(tenures, me)
            tenures = tenures if after is None else _voted(tenures, me, proposal)
        if after is not None and after != fence:
            node = (after, me, me, heard, tenures)
            after_all = self._merged(_put(nodes, place, node), attempts, tokens, begun)
            yield (me, "claim", proposal, place, "accepted, unheard"), after_all
        if phase == GRANTED:
            return
        answer = LOCKED if after is None or phase == SECOND else ACCEPTED
        node = (fence, writer, me, _put(heard, me, answer), tenures)
        if after is not None:
            node = (after, me, *node[2:])
        outcome, after_all = self._heard_claim((_put(nodes, place, node), attempts, tokens, begun), me, node[0])
        yield (me, "claim", proposal, place, outcome or ("locked" if after is None else "accepted")), after_all

    def _heard_claim(self, state: State, me: int, fence: int) -> tuple[str, State]:
        nodes, attempts, tokens, begun = state
        phase, proposal, largest, before = attempts[me]
        if phase == SECOND:
            return "", self._merged(*state)
        largest = max(largest, fence)
        answers = [node[3][me] for node in nodes]
        accepted = answers.count(ACCEPTED)
        if self.is_granted_at_first(accepted + answers.count(LOCKED), accepted):
            return "granted", self._granted(state, me, self.first_token(proposal, largest))
        return "", self._merged(nodes, _put(attempts, me, (FIRST, proposal, largest, before)), tokens, begun)

    def _second(self, state: State, me: int, place: int) -> Steps:
        if not self.is_open_to_second(state[0][place][2] == me):
            return
        if state[1][me][0] == FIRST:
            if sum(node[3][me] != UNHEARD for node in state[0]) < self.majority:
                return
            state = self._second_begun(state, me)
        nodes, attempts, tokens, begun = state
        token = attempts[me][2]
        fence, writer, owner, heard, tenures = nodes[place]
        if heard[me] == ACCEPTED or not self.accepts(token, fence, writer == me):
            return
        if self.ordered:
            tenures = _voted(tenures, me, token)
        unheard = (token, me, owner, heard, tenures)
        yield (
            (me, "second", token, place, "accepted, unheard"),
            self._merged(_put(nodes, place, unheard), attempts, tokens, begun),
        )
        nodes = _put(nodes, place, (token, me, owner, _put(heard, me, ACCEPTED), tenures))
        if self.is_granted_at_second(sum(node[3][me] == ACCEPTED for node in nodes)):
            outcome, after = "granted", self._granted((nodes, attempts, tokens, begun), me, token)
        else:
            outcome, after = "accepted", self._merged(nodes, attempts, tokens, begun)
        yield (me, "second", token, place, outcome), after

    def _second_begun(self, state: State, me: int) -> State:
        nodes, attempts, tokens, begun = state
        _, proposal, largest, before = attempts[me]
        counted_anew = tuple((*node[:3], _put(node[3], me, min(node[3][me], LOCKED)), node[4]) for node in nodes)
        return counted_anew, _put(attempts, me, (SECOND, proposal, largest + 1, before)), tokens, begun

    def _take_back(self, state: State, me: int, place: int) -> Steps:
        nodes, attempts, tokens, begun = state
        token = attempts[me][2]
        fence, _, owner, heard, tenures = nodes[place]
        if not self.may_take_back(token, fence):
            return
        if self.ordered:
            tenures = _voted(_taken(tenures, me), me, token)
        elif owner == me and fence == token:
            return
        node = (self.fence_after_take_back(token, fence), me, me, heard, tenures)
        yield (me, "take-back", token, place, "taken"), self._merged(_put(nodes, place, node), attempts, tokens, begun)

    def _granted(self, state: State, me: int, token: int) -> State:
        nodes, attempts, tokens, begun = state
        _, proposal, _, before = attempts[me]
        attempts = _put(attempts, me, (GRANTED, proposal, token, before))
        nodes = tuple((*node[:3], _put(node[3], me, UNHEARD), node[4]) for node in nodes)
        granted = nodes, attempts, tuple(sorted((*tokens, token))), begun
        if not self.merging or self.wrong(granted) is not None:
            return granted
        return self._merged(nodes, attempts, _that_matter(granted[2], attempts), begun)

    # States that are one ---------------------------------------------------------------------------------------------

    def _merged(
        self, nodes: tuple[Node, ...], attempts: tuple[Attempt, ...], tokens: tuple[int, ...], begun: int
    ) -> State:
        if not self.merging:
            return nodes, attempts, tokens, begun
        if not self.ordered:
            nodes, attempts = _without_what_is_over(nodes, attempts)
        if attempts != (in_order := tuple(sorted(attempts))):
            nodes = _renamed(nodes, sorted(range(self.at_once), key=attempts.__getitem__))
        return tuple(sorted(nodes)), in_order, tokens, begun

    def tell(self, label: Label) -> str:
        who, what, token, place, outcome = label
        if what == "take-back":
            return f"{_name(who)} takes node {place + 1} back with token {token}"
        asks = "proposes" if what == "claim" else "retries with"
        return f"{_name(who)} {asks} {token} at node {place + 1}: {outcome}"


def _without_what_is_over(
    nodes: tuple[Node, ...], attempts: tuple[Attempt, ...]
) -> tuple[tuple[Node, ...], tuple[Attempt, ...]]:
    least = min(nodes)[0]
    for me, (phase, proposal, token, _) in enumerate(attempts):
        if phase == GRANTED:
            nodes = tuple(_without(node, me) for node in nodes)
            attempts = _put(attempts, me, _IDLE if token <= least else (GRANTED, proposal, token, 0))
    return nodes, attempts


def _that_matter(tokens: tuple[int, ...], attempts: tuple[Attempt, ...]) -> tuple[int, ...]:
    """The largest of all, for those who have not begun; for those under way all that are above what they began with."""
    least = min((before for phase, _, _, before in attempts if phase in (FIRST, SECOND)), default=tokens[-1])
    return (*(token for token in tokens[:-1] if token > least), tokens[-1])


def _renamed(nodes: tuple[Node, ...], order: list[int]) -> tuple[Node, ...]:
    new = {old: place for place, old in enumerate(order)} | {NOBODY: NOBODY}
    return tuple(
        (
            fence,
            new[writer],
            new[owner],
            tuple([heard[old] for old in order]),
            tuple([(new[me], vote) for me, vote in tenures]),
        )
        for fence, writer, owner, heard, tenures in nodes
    )


def _without(node: Node, me: int) -> Node:
    """Nothing that happens from now on asks whether it was me."""
    fence, writer, owner, heard, tenures = node
    return (
        fence,
        NOBODY if writer == me else writer,
        NOBODY if owner == me else owner,
        _put(heard, me, UNHEARD),
        tenures,
    )


def _taken(tenures: tuple[Tenure, ...], me: int) -> tuple[Tenure, ...]:
    if tenures and tenures[-1][0] == me:
        return tenures
    return (*(tenure for tenure in tenures if tenure != (me, 0)), (me, 0))


def _voted(tenures: tuple[Tenure, ...], me: int, token: int) -> tuple[Tenure, ...]:
    last = max(place for place, tenure in enumerate(tenures) if tenure[0] == me)
    return _put(tenures, last, (me, token))


def _put(values: tuple[_T, ...], place: int, value: _T) -> tuple[_T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _name(me: int) -> str:
    return "ABCDE"[me]
