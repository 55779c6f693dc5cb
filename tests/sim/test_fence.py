"""Every state of Redlock's rule: nothing is wrong with it, and each clause that is left out is missed.

Where a clause is left out, what it was for is the rule that breaks: tokens that repeat, tokens in another order than
the ownership of a node, or two holders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner

from gripfast_lab.sim.__main__ import main
from gripfast_lab.sim.explore import Found, explore
from gripfast_lab.sim.fence import MODELS, explored, tokens
from gripfast_lab.sim.fence.tokens import Fence
from gripfast_lab.sim.fence.validity import Validity
from support.sweeping import FULL

SMALL = [name for name in MODELS if not name.endswith("-large")]


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_wrong_in(name: str) -> None:
    report = explored(name)
    assert not report.violations, str(report)
    assert report.ended
    assert report.states > 20_000


def test_wider_proposals_change_nothing() -> None:
    assert explore(Fence(proposals=range(5), merging=True)).ended


def test_neither_do_five_nodes() -> None:
    assert explore(Fence(proposals=(0,), nodes=5, merging=True)).ended


def test_it_is_explored_by_name() -> None:
    done = CliRunner().invoke(main, ["--explore", "fence-time"])
    assert done.exit_code == 0
    assert done.stdout.startswith("fence-time: ")
    assert "complete: no other states exist" in done.stdout


# Clauses of the tokens that are left out ----------------------------------------------------------------------------


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def only_one(model: Fence | Validity) -> Found:
    found: Found
    (found,) = explore(model).violations
    return found


class AcceptsEqual(Fence):
    def accepts(self, token: int, fence: int, has_written: bool) -> bool:
        return token >= fence


class MaximumOfCounters(Fence):
    def fence_after_claim(self, proposal: int, fence: int, has_written: bool) -> int:
        return fence + 1

    def first_token(self, proposal: int, largest_heard: int) -> int:
        return largest_heard


class OneAcceptanceInRoundOne(Fence):
    def is_granted_at_first(self, locked: int, accepted: int) -> bool:
        return locked >= self.majority and accepted >= 1


class OneAcceptanceInRoundTwo(Fence):
    def is_granted_at_second(self, accepted: int) -> bool:
        return accepted >= 1


class NoOwnerInRoundTwo(Fence):
    def is_open_to_second(self, is_owner: bool) -> bool:
        return True


class TakeBackThatLowers(Fence):
    def may_take_back(self, token: int, fence: int) -> bool:
        return True


class TakeBackThatDoesNotWrite(Fence):
    def fence_after_take_back(self, token: int, fence: int) -> int:
        return fence


class TakeBackWithoutFence(TakeBackThatLowers, TakeBackThatDoesNotWrite):
    pass


class Forgetful(Fence):
    def steps(self, state: tokens.State) -> tokens.Steps:
        yield from super().steps(state)
        nodes, *rest = state
        for place, (_, _, _, heard, tenures) in enumerate(nodes):
            blank = (0, tokens.NOBODY, tokens.NOBODY, heard, tenures)
            yield (0, "birth", 0, place, ""), (put(nodes, place, blank), *rest)

    def tell(self, label: tokens.Label) -> str:
        return f"node {label[3] + 1} forgets everything" if label[1] == "birth" else super().tell(label)


def test_equal_proposals_need_to_be_refused() -> None:
    found = only_one(AcceptsEqual(proposals=(1,)))
    assert found.what == "token: given twice, of (1, 1)"
    assert found.path == (
        "A proposes 1 at node 1: accepted",
        "A proposes 1 at node 2: granted",
        "B proposes 1 at node 1: accepted",
        "B proposes 1 at node 2: granted",
    )


@pytest.mark.parametrize("left_out", [AcceptsEqual, OneAcceptanceInRoundOne, OneAcceptanceInRoundTwo])
def test_states_that_are_one_hide_nothing(left_out: type[Fence]) -> None:
    every, merged = only_one(left_out()), only_one(left_out(merging=True))
    assert merged.what == every.what
    assert len(merged.path) == len(every.path)


def test_the_maximum_of_counters_is_no_token() -> None:
    found = only_one(MaximumOfCounters(proposals=(0,)))
    assert found.what == "token: given twice, of (2, 2)"
    assert len(found.path) == 4


def test_round_one_needs_a_majority_that_accepted() -> None:
    found = only_one(OneAcceptanceInRoundOne())
    assert found.what == "token: given twice, of (1, 1)"
    assert len(found.path) == 4


def test_round_two_needs_a_majority_that_accepted() -> None:
    found = only_one(OneAcceptanceInRoundTwo())
    assert found.what == "token: given twice, of (1, 1)"
    assert len(found.path) == 5


def test_a_take_back_must_not_lower_the_fence() -> None:
    found = only_one(TakeBackThatLowers(attempts=3, proposals=(1, 2)))
    assert found.what == "token: given twice, of (1, 2, 2)"
    assert len(found.path) == 7


def test_nodes_have_to_remember() -> None:
    found = only_one(Forgetful(proposals=(1,)))
    assert found.what == "token: given twice, of (1, 1)"
    assert len(found.path) == 5


# What keeps tokens in the order of ownership, although they grow without it -----------------------------------------


@pytest.mark.parametrize("left_out", [NoOwnerInRoundTwo, TakeBackThatDoesNotWrite, TakeBackWithoutFence])
def test_tokens_alone_do_not_miss(left_out: type[Fence]) -> None:
    assert explore(left_out(proposals=(0, 1), merging=not FULL)).ended


@pytest.mark.parametrize(
    ("left_out", "what", "steps"),
    [
        (NoOwnerInRoundTwo, "order: on node 1, B with 1 came after A with 2", 6),
        (TakeBackThatDoesNotWrite, "order: on node 3, A with 1 came after B with 2", 5),
        (TakeBackWithoutFence, "order: on node 1, A with 1 came after B with 2", 5),
    ],
)
def test_their_order_misses(left_out: type[Fence], what: str, steps: int) -> None:
    found = only_one(left_out(ordered=True))
    assert found.what == what
    assert len(found.path) == steps


# Clauses of the locks that are left out -----------------------------------------------------------------------------


class NoBirthMarker(Validity):
    def is_waited_for(self, is_under_way: bool) -> bool:
        return False


class ReleaseOfAnyone(Validity):
    def may_release(self, is_owner: bool) -> bool:
        return True


class TakeBackInGrace(Validity):
    def may_take_back(self, is_in_grace: bool) -> bool:
        return True


class CountsAtOnce(Validity):
    def says_yes_to_renewal(self, is_owner: bool, is_free: bool, is_in_grace: bool) -> bool:
        return is_owner or (is_free and self.may_take_back(is_in_grace))


class TakeBackByAMinority(Validity):
    def takes_back_after(self, yes: int) -> bool:
        return True


class CountsAtOnceInGrace(CountsAtOnce, TakeBackInGrace):
    pass


class TakeBackByAMinorityInGrace(TakeBackByAMinority, TakeBackInGrace):
    pass


@pytest.mark.parametrize(
    ("left_out", "steps"),
    [
        (NoBirthMarker(), 5),
        (ReleaseOfAnyone(attempts=3, rounds=0, forgets=0), 8),
        (TakeBackInGrace(rounds=2), 11),
        (CountsAtOnceInGrace(), 8),
        (TakeBackByAMinorityInGrace(rounds=2), 9),
    ],
    ids=lambda value: type(value).__name__,
)
def test_two_hold_the_lock_with(left_out: Validity, steps: int) -> None:
    found = only_one(left_out)
    assert found.what.startswith("overlap: ")
    assert len(found.path) == steps


def test_a_vote_that_a_node_forgot_is_still_counted_by_whoever_got_it() -> None:
    assert only_one(TakeBackInGrace(rounds=2)).path[5:] == (
        "node 3, B: claim",
        "node 3 forgets everything",
        "node 3, A: take-back",
        "node 3, A: renewal, held",
        "node 2, A: expiry",
        "node 2, B: claim, held",
    )


@pytest.mark.parametrize("left_out", [CountsAtOnce, TakeBackByAMinority])
def test_a_grace_that_is_closed_to_take_backs_makes_up_for(left_out: type[Validity]) -> None:
    assert explore(left_out(attempts=3, merging=True)).ended


# The same rule in full ----------------------------------------------------------------------------------------------
#
# With a step of its own for all that happens: requests and replies on their way, expiries, decisions. It is here to
# hold the shorter model to it: the same grants come of both, by the right rule and by wrong ones.

Grants = tuple[tuple[int, int], ...]
"""Of two grants the tokens, each with the largest that was given before its attempt began."""


@dataclass
class Noting(Fence):
    grants: set[Grants] = field(default_factory=set)

    def wrong(self, state: tokens.State) -> None:
        granted = [(token, before) for phase, _, token, before in state[1] if phase == tokens.GRANTED]
        if len(granted) == 2:
            self.grants.add(tuple(sorted(granted)))


@dataclass
class InFull:
    """A node: fence, writer, owner, and for each attempt what is on its way or was heard. An attempt: phase, proposal,
    token, largest token given before."""

    rule: Fence
    grants: set[Grants] = field(default_factory=set)
    name: str = "in full"

    def starts(self) -> Iterator[Any]:
        yield ((0, -1, -1, (("nothing",),) * 2),) * 3, (("idle", 0, 0, 0),) * 2

    def wrong(self, state: Any) -> None:
        granted = [(token, before) for phase, _, token, before in state[1] if phase == "granted"]
        if len(granted) == 2:
            self.grants.add(tuple(sorted(granted)))

    def tell(self, label: Any) -> str:
        return str(label)

    def steps(self, state: Any) -> Iterator[tuple[None, Any]]:
        for nodes, attempts in self._afters(*state):
            yield None, (tuple(sorted(nodes)), attempts)

    def _afters(self, nodes: Any, attempts: Any) -> Iterator[Any]:
        for place, (fence, writer, owner, mail) in enumerate(nodes):
            if owner >= 0:
                yield put(nodes, place, (fence, writer, -1, mail)), attempts
        for me, attempt in enumerate(attempts):
            if attempt[0] == "idle":
                yield from self._beginnings(nodes, attempts, me)
                return
            yield from self._decisions(nodes, attempts, me)
            for place, node in enumerate(nodes):
                for after in self._after_mail(node, me, *attempt):
                    yield put(nodes, place, after), attempts

    def _beginnings(self, nodes: Any, attempts: Any, me: int) -> Iterator[Any]:
        given = max(token if phase == "granted" else 0 for phase, _, token, _ in attempts)
        for proposal in self.rule.proposals:
            asked = tuple((*node[:3], put(node[3], me, ("claim",))) for node in nodes)
            yield asked, put(attempts, me, ("first", proposal, 0, given))

    def _decisions(self, nodes: Any, attempts: Any, me: int) -> Iterator[Any]:
        phase, proposal, token, before = attempts[me]
        heard = [node[3][me] for node in nodes if node[3][me][0] == "heard"]
        accepted = sum(is_accepted for _, is_accepted, _ in heard)
        if phase == "first" and self.rule.is_granted_at_first(len(heard), accepted):
            yield self._next(nodes, me, "nothing"), put(attempts, me, ("granted", proposal, proposal, before))
        elif phase == "first" and len(heard) >= self.rule.majority:
            token = 1 + max(fence for _, _, fence in heard)
            yield self._next(nodes, me, "second"), put(attempts, me, ("second", proposal, token, before))
        elif phase == "second" and self.rule.is_granted_at_second(accepted):
            yield self._next(nodes, me, "nothing"), put(attempts, me, ("granted", proposal, token, before))

    def _next(self, nodes: Any, me: int, to_those_heard: str) -> Any:
        """Claims may still arrive. Replies that were not heard by now are not missed."""
        then = {"claim": "claim", "heard": to_those_heard}
        return tuple((*node[:3], put(node[3], me, (then.get(node[3][me][0], "nothing"),))) for node in nodes)

    def _after_mail(self, node: Any, me: int, phase: str, proposal: int, token: int, before: int) -> Iterator[Any]:
        fence, writer, owner, mail = node
        kind, *said = mail[me]
        if kind == "reply":
            yield fence, writer, owner, put(mail, me, ("heard", *said))
        elif kind == "claim" and owner in (-1, me):
            is_accepted = self.rule.accepts(proposal, fence, writer == me)
            fence, writer = (proposal, me) if is_accepted else (fence, writer)
            reply = ("reply", is_accepted, fence) if phase == "first" else ("nothing",)
            yield fence, writer, me, put(mail, me, reply)
        elif kind == "second" and owner == me and self.rule.accepts(token, fence, writer == me):
            yield token, me, owner, put(mail, me, ("reply", True, token))
        if phase == "granted" and owner < 0 and self.rule.may_take_back(token, fence):
            yield self.rule.fence_after_take_back(token, fence), me, me, mail


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("rule", "proposal"), [(Fence, 0), (Fence, 1), (AcceptsEqual, 1), (OneAcceptanceInRoundTwo, 0)]
)
def test_the_same_comes_of_the_rule_in_full(rule: type[Fence], proposal: int) -> None:
    short = type("Noting", (Noting, rule), {})(proposals=(proposal,))
    in_full = InFull(rule(proposals=(proposal,)))
    assert explore(short).ended
    assert explore(in_full).ended
    assert in_full.grants == short.grants
    assert in_full.grants
