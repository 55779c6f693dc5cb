"""What one node does, request by request, on a real server."""

import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gripfast.core.redlock.nodes import (
    LOCKED,
    Accept,
    Busy,
    Establish,
    Free,
    Freed,
    Locked,
    Mark,
    Newborn,
    Renew,
    Request,
    TakeBack,
    Unlock,
    Unmarked,
    Vote,
    Wake,
)
from gripfast.stores.redis.protocol import card
from gripfast.stores.redlock.protocol import Wording
from support.redis_server import RedisServer

GRACE = 60.0
BIRTH = b"gripfast\0gripfast:birth"
DAY = 24 * 3600 * 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Speaker:
    def __init__(self, client: Any) -> None:
        self.client = client
        self._wording = Wording(GRACE, functools.partial(card, host="here", pid=1))

    def __call__(self, request: Request, channel: bytes = b"") -> Any:
        connection = self.client.connection_pool.get_connection()
        try:
            connection.send_packed_command([self._wording.in_full(request, channel)])
            return self._wording.read(request, [connection.read_response()], "node")
        finally:
            self.client.connection_pool.release(connection)

    def left(self) -> int:
        return int(self.client.pttl("job"))


@pytest.fixture
def node(server: RedisServer) -> Iterator[Speaker]:
    with server.client() as client:
        client.flushall()
        client.set(BIRTH, 0)
        yield Speaker(client)


def now() -> int:
    return time.time_ns() // 1000


def vote(owner: str, attempt: int = 1, ttl: float = 30.0, proposal: int | None = None, waits: bool = False) -> Vote:
    return Vote("job", owner, attempt, ttl, None, now() if proposal is None else proposal, waits)


def test_a_late_copy_of_a_vote_does_not_shorten_a_lease(node: Speaker) -> None:
    first = vote("ann", ttl=1.0)
    assert node(first) == LOCKED
    assert node(Renew("job", "ann", 1, 60.0, False)) is True
    assert node(first) == LOCKED
    assert node.left() > 50_000


def test_an_earlier_attempt_that_comes_late_changes_nothing(node: Speaker) -> None:
    assert node(vote("ann", attempt=2)) == LOCKED
    assert isinstance(node(vote("ann", attempt=1)), Busy)
    assert node(Unlock("job", "ann", 1)) == Freed(False, False)
    assert node.client.get("job") == b"ann.2"


def test_an_earlier_attempt_does_not_vote_against_a_later_one(node: Speaker) -> None:
    assert node(vote("ann", attempt=1)) == LOCKED
    assert node(vote("ann", attempt=2)) == LOCKED
    assert node.client.get("job") == b"ann.2"


def test_a_proposal_must_be_larger_unless_it_was_the_same_attempts(node: Speaker) -> None:
    p = now()
    assert node(vote("ann", proposal=p)) == LOCKED
    assert node(vote("ann", proposal=p)) == LOCKED
    node(Free("job", "ann"))
    assert node(vote("bob", proposal=p)) == Locked(False, p)
    assert node(Accept("job", "bob", 1, 30.0, None, p)) == Locked(False, p)
    assert node(Accept("job", "bob", 1, 30.0, None, p + 1)) == LOCKED
    assert node(Accept("job", "bob", 1, 30.0, None, p + 1)) == LOCKED


def test_nobody_accepts_a_token_for_an_attempt_that_has_lost_the_lock(node: Speaker) -> None:
    p = now()
    assert node(vote("ann", proposal=p)) == LOCKED
    node(Unlock("job", "ann", 1))
    assert isinstance(node(Accept("job", "ann", 1, 30.0, None, p + 5)), Busy)
    assert node(vote("bob", proposal=p + 1)) == LOCKED


def test_a_wild_clock_does_not_spoil_a_name(node: Speaker) -> None:
    answer = node(vote("ann", proposal=now() + 2 * DAY))
    assert isinstance(answer, Locked)
    assert not answer.has_accepted
    assert answer.fence < now()


def test_what_a_node_tells_of_a_name_it_does_not_know_is_what_a_second_round_finds(node: Speaker) -> None:
    """A client whose clock is days behind."""
    answer = node(vote("ann", proposal=now() - 3 * DAY))
    assert isinstance(answer, Locked)
    assert node(Accept("job", "ann", 1, 30.0, None, answer.fence + 1)) == LOCKED


def test_one_without_a_marker_does_not_vote_and_is_not_changed_by_being_asked(node: Speaker) -> None:
    node.client.flushall()
    answer = node(vote("ann"))
    assert isinstance(answer, Unmarked)
    assert node.client.keys() == []
    assert node(Establish(answer.moment - 5_000)) is False
    assert node(Establish(answer.moment)) is True
    assert node(vote("ann")) == LOCKED


def test_one_that_was_born_just_now_neither_votes_nor_is_taken_back(node: Speaker) -> None:
    """Somebody may count on a vote that it has forgotten."""
    node.client.flushall()
    assert node(Mark()) is True
    assert node(Mark()) is False
    assert isinstance(node(vote("ann")), Newborn)
    assert node(TakeBack("job", "ann", 1, 30.0, None, now())) is False
    assert node.client.get("job") is None


def test_a_renewal_marks_one_that_has_lost_its_memory(node: Speaker) -> None:
    node.client.flushall()
    assert node(TakeBack("job", "ann", 1, 30.0, None, now())) is False
    assert node.client.keys() == [BIRTH]


def test_one_that_is_old_enough_is_taken_back_also_by_an_old_lease(node: Speaker) -> None:
    node.client.flushall()
    node.client.set(BIRTH, now() // 1000 - 61_000)
    token = now() - 3 * DAY
    assert node(TakeBack("job", "ann", 1, 30.0, None, token)) is True
    assert node(vote("bob", proposal=token)) != LOCKED
    node(Free("job", "ann"))
    assert node(vote("bob", proposal=token)) == Locked(False, token)


def test_nothing_is_taken_back_over_a_larger_token(node: Speaker) -> None:
    p = now()
    assert node(vote("bob", proposal=p)) == LOCKED
    node(Free("job", "bob"))
    assert node(TakeBack("job", "ann", 1, 30.0, None, p - 1)) is False


def test_a_marker_of_the_future_is_put_right(node: Speaker) -> None:
    """The clock was put back since."""
    node.client.set(BIRTH, now() // 1000 + 10**9)
    answer = node(vote("ann"))
    assert isinstance(answer, Newborn)
    assert answer.votes_in <= GRACE


def test_whoever_was_told_and_has_not_come_is_passed_over_until_it_asks(node: Speaker) -> None:
    heard = node.client.pubsub()
    heard.subscribe("a", "b")
    node(vote("ann"))
    node(vote("bob", waits=True), b"a")
    node(vote("cid", waits=True), b"b")
    node(Free("job", "ann"))
    assert [node(Wake("job")) for _ in range(3)] == [True, True, False]
    node(vote("dan"))
    node(vote("bob", waits=True), b"a")
    assert node(Wake("job")) is True
    messages = [message for _ in range(9) if (message := heard.get_message(timeout=0.5))]
    told = [message["data"] for message in messages if message["type"] == "message"]
    assert told == [b"bob 0 0", b"cid 0 0", b"bob 0 0"]
    heard.close()


def test_a_waiter_whom_nobody_can_reach_leaves_the_line(node: Speaker) -> None:
    node(vote("ann"))
    node(vote("bob", waits=True), b"nobody-listens")
    assert node(Free("job", "ann")) == Freed(True, True)
    assert node(Wake("job")) is False
    assert node(Free("job", "ann")) == Freed(False, False)
