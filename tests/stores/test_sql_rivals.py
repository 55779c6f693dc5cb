"""Threads that want the same of a blocking link: its connections, its claims, its end."""

import threading
import time
from typing import Any

from gripfast.runtime.blocking import drive
from gripfast.stores.sql.blocking import BlockingLink, BlockingTurn, SharedConnections
from gripfast.stores.sql.conversation import Claims, Conversation
from gripfast.stores.sql.ports import Fault

SOON = 3.0


class Nowhere:
    where = "sql://nowhere"


class Idle:
    is_open = True

    def __init__(self) -> None:
        self.conversation = Conversation(1, "", is_proxied=False)
        self.sent: list[Any] = []

    def send(self, queries: Any) -> None:
        self.sent.append(queries)


def test_who_is_told_of_a_connection_that_another_takes_waits_no_longer_than_it_may() -> None:
    """A queue's own time-out may last for ever then."""
    shared = SharedConnections(Nowhere(), 5.0, 1)  # type: ignore[arg-type]
    found: list[Any] = []
    waiters = [threading.Thread(target=lambda: found.append(shared._wait_for_idle(0.2))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    started = time.monotonic()
    while any(waiter.is_alive() for waiter in waiters):
        assert time.monotonic() - started < SOON
        shared._wake_one()
    assert found == [None] * 4


def test_every_connection_that_is_put_back_reaches_one_who_waits() -> None:
    shared = SharedConnections(Nowhere(), 5.0, 1)  # type: ignore[arg-type]
    found: list[Any] = []
    waiters = [threading.Thread(target=lambda: found.append(shared._wait_for_idle(SOON))) for _ in range(8)]
    for waiter in waiters:
        waiter.start()
    given = [Idle() for _ in waiters]
    for each in given:
        shared.put_back(each)  # type: ignore[arg-type]
    for waiter in waiters:
        waiter.join(SOON)
    assert set(found) == set(given)


def test_a_turn_is_waited_for_no_longer_than_told() -> None:
    turn = BlockingTurn()
    assert turn.take_now()
    assert not drive(turn.take(0.01))
    turn.leave()
    assert drive(turn.take(0.01))


def test_no_claim_leaves_when_the_client_is_closed() -> None:
    """Whoever cleans up was here before."""
    link = BlockingLink(Nowhere(), 5.0, 1)  # type: ignore[arg-type]
    link._shared.put_back(connection := Idle())  # type: ignore[arg-type]
    link.stop_waiting()
    answer = drive(link.request([], owner="me"))
    assert isinstance(answer, Fault)
    assert not answer.was_sent
    assert (connection.sent, dict(link.claims)) == ([], {})
    assert link._shared._idle.get_nowait() is connection


def test_what_was_answered_of_a_waiter_that_claims_again_is_not_kept() -> None:
    claims, conversation = Claims(), Conversation(1, "", is_proxied=False)
    for number in range(100):
        claims.note("me", conversation)
        conversation.sent = conversation.answered = number + 1
    assert len(claims["me"]) == 1


def test_an_earlier_claim_without_an_answer_is_kept() -> None:
    claims = Claims()
    silent, other = Conversation(1, "", is_proxied=False), Conversation(2, "", is_proxied=False)
    for conversation in (silent, other):
        claims.note("me", conversation)
        conversation.sent += 1
    assert [claim.conversation for claim in claims["me"]] == [silent, other]
    assert claims.has_unanswered("me")
