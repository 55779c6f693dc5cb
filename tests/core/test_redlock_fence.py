"""The fencing rule: which token is proposed, which one follows, and why no two grants get the same."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from core.scripted_nodes import WALL_US, YES, busy, down, locked_only
from gripfast.core.redlock.fence import SEEN_MOST, Proposals, second_token
from gripfast.core.redlock.nodes import Answer, Busy, Locked


def test_the_wall_clock_is_proposed_while_nothing_larger_was_seen() -> None:
    proposals = Proposals()
    assert proposals.next("job", WALL_US) == WALL_US
    proposals.saw("job", WALL_US - 1)
    assert proposals.next("job", WALL_US) == WALL_US


def test_one_more_than_the_largest_seen_is_proposed_where_the_clock_is_behind() -> None:
    proposals = Proposals()
    proposals.saw("job", WALL_US + 9)
    proposals.saw("job", WALL_US + 4)
    assert proposals.next("job", WALL_US) == WALL_US + 10


def test_a_token_equal_to_the_clock_was_seen_and_is_not_proposed_again() -> None:
    proposals = Proposals()
    proposals.saw("job", WALL_US)
    assert proposals.next("job", WALL_US) == WALL_US + 1


def test_what_was_seen_of_one_name_says_nothing_about_another() -> None:
    proposals = Proposals()
    proposals.saw("job", WALL_US + 9)
    assert proposals.next("other job", WALL_US) == WALL_US


def test_a_client_of_many_names_remembers_the_newest_of_them_and_no_more() -> None:
    proposals = Proposals()
    for number in range(SEEN_MOST + 10):
        proposals.saw(f"job {number}", WALL_US + 9)
    assert proposals.next(f"job {SEEN_MOST + 9}", WALL_US) == WALL_US + 10
    assert proposals.next("job 0", WALL_US) == WALL_US
    assert len(vars(proposals)["_seen"]) <= SEEN_MOST


fences = st.integers(min_value=0, max_value=20)


@given(st.lists(st.one_of(st.just(YES), fences.map(locked_only)), min_size=1, max_size=5), fences)
def test_the_second_token_is_above_the_proposal_and_above_everything_that_was_told(
    answers: list[Locked], proposal: int
) -> None:
    others: list[Answer] = [busy(fence=100), down()]
    token = second_token(proposal, [*answers, *others])
    accepted = [proposal if answer.has_accepted else answer.fence for answer in answers]
    assert token > max(accepted)


def test_an_accepted_proposal_counts_as_accepted_whatever_stood_there_before() -> None:
    assert second_token(50, [YES, locked_only(3), locked_only(4)]) == 51


# The rule itself ----------------------------------------------------------------------------------------------------


@dataclass
class RememberingNode:
    """What the port says that a node does, in the plainest way: it forgets locks at any moment, but never F."""

    holder: str = ""
    fence: int = 0
    writer: str = ""

    def vote(self, owner: str, proposal: int) -> Answer:
        if self.holder not in ("", owner):
            return Busy(None, self.fence)
        self.holder = owner
        return self._accept(owner, proposal)

    def accept(self, owner: str, token: int) -> Answer:
        return self._accept(owner, token) if self.holder == owner else Busy(None, self.fence)

    def _accept(self, owner: str, token: int) -> Locked:
        if token > self.fence or (token == self.fence and self.writer == owner):
            self.fence, self.writer = token, owner
            return Locked(True)
        return Locked(False, self.fence)


class Attempt:
    """An owner whose votes arrive one by one, in any order between those of the others."""

    def __init__(self, owner: str, proposal: int, began: int) -> None:
        self.owner = owner
        self.proposal = proposal
        self.began = began
        self.first: dict[int, Answer] = {}
        self.second: dict[int, Answer] = {}
        self.token = 0
        self.granted_at = -1

    def step(self, node: int, nodes: list[RememberingNode], moment: int) -> None:
        if self.granted_at >= 0:
            return
        if not self.token:
            self.first.setdefault(node, nodes[node].vote(self.owner, self.proposal))
            locked = [answer for answer in self.first.values() if isinstance(answer, Locked)]
            if sum(answer.has_accepted for answer in locked) >= 2:
                self.token, self.granted_at = self.proposal, moment
            elif len(locked) >= 2:
                self.token = second_token(self.proposal, list(self.first.values()))
        elif isinstance(self.first.get(node), Locked):
            self.second.setdefault(node, nodes[node].accept(self.owner, self.token))
            if sum(isinstance(answer, Locked) and answer.has_accepted for answer in self.second.values()) >= 2:
                self.granted_at = moment


steps = st.lists(st.tuples(st.sampled_from(["ask", "ask", "expire"]), fences, st.integers(0, 2)), max_size=40)


@given(st.lists(fences, min_size=4, max_size=4), steps)
def test_tokens_differ_and_grow_although_locks_expire_at_any_moment(
    clocks: list[int], steps: list[tuple[str, int, int]]
) -> None:
    nodes = [RememberingNode() for _ in range(3)]
    attempts: list[Attempt] = []
    granted: list[Attempt] = []
    for moment, (what, number, node) in enumerate(steps):
        if what == "expire":
            nodes[node].holder = ""
            continue
        while len(attempts) <= number % 4:
            attempts.append(Attempt(f"owner {len(attempts)}", clocks[len(attempts)], moment))
        attempt = attempts[number % 4]
        attempt.step(node, nodes, moment)
        if attempt.granted_at == moment:
            granted.append(attempt)
    assert len({attempt.token for attempt in granted}) == len(granted)
    for earlier in granted:
        for later in granted:
            if earlier.granted_at < later.began:
                assert earlier.token < later.token
