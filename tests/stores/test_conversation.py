"""What is known about a connection: replies in order, unanswered claims, silence, what may be repeated."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hiredis import ReplyError
from hypothesis import given
from hypothesis import strategies as st

from gripfast.errors import OutcomeUnknown
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import LOOKS, PARKED_MOST, Lending, Server
from gripfast.stores.redis.faults import not_connected
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.talk import Node, NodeTalk
from stores.conversation_stage import TIMEOUT, Begun, Clock, Once, Talk, Told, fault_of


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Server:
    return Server("redis://there", TIMEOUT)


@pytest.fixture
def talk(server: Server, clock: Clock) -> Talk:
    return Talk(server, clock)


def test_replies_find_their_requests_in_order_and_one_that_was_given_up_keeps_its_position(talk: Talk) -> None:
    first, second, third = talk.ask(), talk.ask(), talk.ask()
    second.has_left = True
    for reply in (1, 2, 3):
        talk.take(reply)
    assert (first.replies, second.replies, third.replies) == ([1], [], [3])


def test_replies_to_requests_that_left_together_are_told_together(talk: Talk) -> None:
    together, alone = Told(), Told()
    talk.ask_many_for(together, b"", [None, None])
    talk.ask_for(alone, b"")
    for reply in (1, 2, 3):
        talk.take(reply)
    assert (together.replies, alone.replies) == ([[1, 2]], [3])


def test_a_claim_is_noted_until_it_is_answered(talk: Talk, server: Server) -> None:
    talk.ask(b"claim", "ann")
    assert server.unanswered == {"ann": talk}
    talk.take(1)
    assert not server.has_unanswered


def test_the_reply_to_a_claim_that_was_cleaned_up_says_nothing_about_the_next_one(talk: Talk, server: Server) -> None:
    talk.ask(b"claim", "ann")
    talk.ask(b"clean up")
    server.follows("ann", talk)
    talk.ask(b"claim", "ann")
    for _ in range(2):
        talk.take(1)
        assert server.unanswered_of("ann") == [talk]
    talk.take(1)
    assert not server.has_unanswered


def test_claims_are_noted_until_the_last_on_each_connection_is_answered(server: Server, clock: Clock) -> None:
    one, other = Talk(server, clock), Talk(server, clock)
    for talk in (one, other, one, one):
        talk.ask(b"claim", "ann")
    for talk, noted in [(one, {one, other}), (one, {one, other}), (one, {other}), (other, set[Talk]())]:
        talk.take(1)
        assert set(server.unanswered_of("ann")) == noted


def test_a_clean_up_is_sent_behind_the_claim(talk: Talk, server: Server) -> None:
    talk.ask(b"claim", "ann")
    assert server.clean_up("ann", b"clean up") is True
    assert talk.sent == [b"claim", b"clean up"]
    assert server.clean_up("ann", b"clean up") is None


def test_a_clean_up_is_sent_behind_every_claim_that_was_repeated(server: Server, clock: Clock) -> None:
    talks = [Talk(server, clock) for _ in range(3)]
    for talk in talks:
        talk.ask(b"claim", "ann")
        clock.pass_by(2 * TIMEOUT)
    assert server.clean_up("ann", b"clean up") is True
    assert [talk.sent for talk in talks] == [[b"claim", b"clean up"]] * 3


def test_a_claim_that_was_lost_with_its_connection_can_not_be_followed(talk: Talk, server: Server) -> None:
    talk.ask(b"claim", "ann")
    talk.end(None)
    assert server.clean_up("ann", b"clean up") is False


def test_who_goes_on_using_a_connection_cleans_up_only_elsewhere(server: Server, clock: Clock) -> None:
    silent, used = Talk(server, clock), Talk(server, clock)
    silent.ask(b"claim", "ann")
    clock.pass_by(2 * TIMEOUT)
    used.ask(b"claim", "ann")
    assert server.clean_up_elsewhere("ann", lambda: b"clean up", is_done=True, here=used) is True
    assert (silent.sent, used.sent) == ([b"claim", b"clean up"], [b"claim"])
    assert server.unanswered == {"ann": used}
    server.follows("ann", used)
    assert not server.has_unanswered


def test_a_server_that_says_nothing_for_a_time_out_is_silent_and_the_connection_is_kept(
    talk: Talk, clock: Clock
) -> None:
    told = talk.ask()
    clock.pass_by(TIMEOUT * (LOOKS - 1) / LOOKS)
    assert talk.is_open
    clock.pass_by(TIMEOUT)
    assert (talk.is_open, talk.is_silent, talk.is_kept) == (False, True, True)
    assert not fault_of(told).was_idle  # it would be as silent on another one


def test_a_server_that_answers_somebody_is_not_silent(talk: Talk, clock: Clock) -> None:
    for _ in range(20):
        talk.ask()
        talk.ask()
        clock.pass_by(TIMEOUT / 2)
        talk.take(1)
    assert talk.is_open


def test_a_process_that_was_paused_itself_blames_nobody(talk: Talk, clock: Clock) -> None:
    told = talk.ask()
    clock.now += 100 * TIMEOUT
    clock.pass_by(0.0)
    talk.take(1)
    assert told.replies == [1]


def test_nor_does_one_that_may_wait_for_as_long_as_everybody(talk: Talk, clock: Clock) -> None:
    """A renewal of a long lease."""
    told = talk.ask()
    talk.expect_within(TIMEOUT, told=TIMEOUT)
    clock.now += 100 * TIMEOUT
    clock.pass_by(0.0)
    talk.take(1)
    assert told.replies == [1]


def test_who_can_wait_for_less_has_it_given_up_earlier_and_the_others_may_repeat(talk: Talk, clock: Clock) -> None:
    patient = talk.ask()
    hasty = talk.ask()
    talk.expect_within(TIMEOUT / 10, told=TIMEOUT / 10, spares=True)
    clock.pass_by(TIMEOUT / 5)
    assert fault_of(patient).was_idle
    assert fault_of(hasty).was_idle


@pytest.mark.parametrize("had_answered", [False, True])
def test_only_what_was_lost_on_a_connection_that_had_answered_may_be_repeated(talk: Talk, had_answered: bool) -> None:
    if had_answered:
        talk.ask()
        talk.take(1)
    told = talk.ask()
    talk.end(None)
    assert fault_of(told).was_idle == had_answered


each_that_cant_serve = pytest.mark.parametrize("code", ["READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS"])


@each_that_cant_serve
def test_a_server_that_cant_serve_is_left_behind_what_else_has_arrived(talk: Talk, clock: Clock, code: str) -> None:
    first, second, third = talk.ask(), talk.ask(), talk.ask()
    talk.take(ReplyError(f"{code} for now"))
    talk.take(2)
    clock.pass_by(0.0)
    assert (len(first.replies), second.replies, talk.is_open) == (1, [2], False)
    assert fault_of(third).was_idle
    assert isinstance(fault_of(third).error, OutcomeUnknown)
    assert f"({code} for now)" in str(fault_of(third).error)


def test_an_interrupt_ends_the_conversation(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = talk.ask()

    def interrupt(packed: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(talk, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        talk.ask()
    assert not talk.is_open
    assert isinstance(before.replies[0], Fault)


def test_few_silent_connections_are_kept_and_none_after_the_end(server: Server, clock: Clock) -> None:
    talks = [Talk(server, clock) for _ in range(PARKED_MOST + 2)]
    for talk in talks:
        server.park(talk)
    assert [talk.is_closed for talk in talks] == [True, True] + [False] * PARKED_MOST
    server.close()
    assert all(talk.is_closed for talk in talks)
    late = Talk(server, clock)
    server.park(late)
    assert late.is_closed


# Lending --------------------------------------------------------------------------------------------------------------


def test_a_connection_goes_to_the_next_only_if_nothing_else_is_owed_on_it(server: Server, clock: Clock) -> None:
    lending: Lending[Talk] = Lending(server)
    talk, followed = Talk(server, clock), Talk(server, clock)
    server.sends("ann", talk)
    lending.take_back(talk, "ann", [1])
    assert lending.idle == [talk]
    server.sends("bob", followed)
    server.clean_up("bob", b"clean up", parks=True)
    lending.take_back(followed, "bob", [1])
    assert lending.idle == [talk]


def test_no_more_connections_are_kept_than_wanted(server: Server, clock: Clock) -> None:
    lending: Lending[Talk] = Lending(server, idle_most=1)
    first, second = Talk(server, clock), Talk(server, clock)
    lending.take_back(first, None, [1])
    lending.take_back(second, None, [1])
    assert (first.is_closed, second.is_closed) == (False, True)
    lending.close()
    assert first.is_closed


@each_that_cant_serve
def test_connections_to_a_server_that_cant_serve_go_together(server: Server, clock: Clock, code: str) -> None:
    lending: Lending[Talk] = Lending(server)
    first, second = Talk(server, clock), Talk(server, clock)
    lending.take_back(first, None, [1])
    lending.take_back(second, None, [1, ReplyError(code)])
    assert (first.is_closed, second.is_closed, lending.idle) == (True, True, [])


# Any history ----------------------------------------------------------------------------------------------------------

OWNERS = st.sampled_from(["ann", "bob", "cid"])
STEPS = st.one_of(
    st.tuples(st.just("claim"), OWNERS),
    st.tuples(st.just("ask"), st.none()),
    st.tuples(st.just("leave"), st.none()),
    st.tuples(st.just("answer"), st.none()),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("wait"), st.floats(0.01, 3 * TIMEOUT)),
    st.tuples(st.just("clean up"), OWNERS),
)


class History:
    """A client with one connection at a time, and a server that answers what it got, in order, with its number."""

    def __init__(self) -> None:
        self.clock, self.server = Clock(), Server("there", TIMEOUT)
        self.talks = [Talk(self.server, self.clock)]
        self.asked: list[tuple[Told, int, int]] = []
        """Each caller, the connection, and the position there."""
        self.cut: set[int] = set()
        self.attempts: Counter[str] = Counter()

    @property
    def talk(self) -> Talk:
        if not self.talks[-1].is_open:
            self.talks.append(Talk(self.server, self.clock))
        return self.talks[-1]

    def step(self, what: str, value: Any) -> None:
        if what in ("claim", "clean up"):
            value = f"{value} {self.attempts[value]}"
        if what in ("claim", "ask"):
            talk = self.talk
            position = len(talk.sent)
            told = talk.ask(f"{what} {value}".encode(), value)
            self.asked.append((told, self.talks.index(talk), position))
        elif what == "leave" and self.asked:
            self.asked[-1][0].has_left = True
        elif what == "answer" and self.talks[-1].is_open and self.talks[-1].owed:
            self.talks[-1].take(self.talks[-1].answers)
        elif what == "cut" and self.talks[-1].is_open:
            self.cut.add(len(self.talks) - 1)
            self.talks[-1].end(None)
        elif what == "wait":
            self.clock.pass_by(value)
        elif what == "clean up":
            self.check_clean_up(value)
            self.attempts[value.split()[0]] += 1  # who was cleaned up is done: the next attempt has another owner id

    def check_clean_up(self, owner: str) -> None:
        """Behind every claim of this owner that was not answered, wherever that can be, and otherwise it is told."""
        claim, clean_up = f"claim {owner}".encode(), f"clean up {owner}".encode()
        behind = [self.talks.index(talk) for talk in self.server.unanswered_of(owner)]  # type: ignore[arg-type]
        left = self.server.clean_up(owner, clean_up)
        assert left == (not set(behind) & self.cut if behind else None)
        for place, talk in enumerate(self.talks):
            unanswered = [at for at in range(talk.answers, len(talk.sent)) if talk.sent[at] == claim]
            followed = any(clean_up in talk.sent[at:] for at in unanswered[-1:])
            assert not unanswered or followed or place in self.cut

    def check(self) -> None:
        for told, _, position in self.asked:
            assert len(told.replies) <= 1
            assert all(isinstance(reply, Fault) or reply == position for reply in told.replies)
        for talk in self.talks:
            assert talk.is_open or not talk.owed  # everybody was told


@given(st.lists(STEPS, max_size=40))
def test_whatever_is_lost_late_or_cut_nobody_gets_anothers_reply_and_no_claim_is_overtaken(
    steps: list[tuple[str, Any]],
) -> None:
    history = History()
    for what, value in steps:
        history.step(what, value)
        history.check()


class Racing(dict[str, Any]):
    """The other thread is always quicker."""

    def get(self, owner: str, default: Any = None) -> Any:
        return self.pop(owner, default)


def test_a_reply_that_meets_a_clean_up_of_another_thread_is_told_all_the_same() -> None:
    server, told = Server("redis://a", 1.0), Told()
    talk = Talk(server, Clock())
    talk.ask_for(told, b"claim", "me")
    server.unanswered = Racing(server.unanswered)
    talk.take(1)
    assert (told.replies, talk.is_open) == ([1], True)


def test_a_claim_on_another_connection_is_known_at_any_moment_while_a_reply_is_noted() -> None:
    """An interrupt, or a clean-up on another thread, may come at each of them."""
    server, clock = Server("redis://a", TIMEOUT), Clock()
    silent, used = Talk(server, clock), Talk(server, clock)
    for talk in (silent, used, silent, used):
        talk.ask(b"claim", "ann")
    known: list[bool] = []

    def look(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        if event == "opcode":
            known.append(silent in server.unanswered_of("ann"))
        return look

    sys.settrace(look)
    try:
        used.take(1)
        used.take(1)
    finally:
        sys.settrace(None)
    assert len(known) > 50
    assert all(known)
    assert set(server.unanswered_of("ann")) == {silent}


def a_node_that_is_down() -> tuple[Node, Begun]:
    server, clock = Server("redis://a", 1.0), Clock()
    node = Node(0, server, clock, lambda: clock.now, set())
    opening, node.notifications = Begun(server.where, Once), Begun(server.where, Once)
    node.probe = NodeTalk(node, opening, Wording(1.0, lambda label: b""), Inboxes(), clock).dial
    node.goes_down(not_connected(server.where, TimeoutError()))
    return node, opening


def make(opening: Begun, node: Node) -> None:
    if opening.begun is not None and not opening.begun.done():
        opening.made(opening.begun, Talk(node.server, Clock()), lambda made: made)


WATCHED = {"dial", "start", "end", "made", "_used", "_dialled", "comes_up"}


def interrupting(at: int) -> tuple[Callable[..., Any], list[int]]:
    """A trace function that raises at a line of what connects; and the lines that it has seen."""
    seen: list[int] = []

    def on_line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == at:
                raise KeyboardInterrupt
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        is_ours = frame.f_code.co_filename.endswith(("talk.py", "shared.py"))
        return on_line if is_ours and frame.f_code.co_name in WATCHED else None

    return on_call, seen


def test_an_interrupt_at_any_line_of_connecting_leaves_no_node_down_for_ever() -> None:
    for at in itertools.count(1):
        node, opening = a_node_that_is_down()
        trace, seen = interrupting(at)
        sys.settrace(trace)
        try:
            node.probe()
            make(opening, node)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        if len(seen) < at:
            break
        for _ in range(5):
            make(opening, node)
            node._probing = None
            if node.trouble is not None:
                node.look()
        assert node.trouble is None, at
    assert at > 20
