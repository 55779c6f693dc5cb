"""Threads that want the same of a blocking link: its connections, its claims, its end."""

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.faults import LinkDown
from gripfast.stores.sql.blocking import BlockingLink, BlockingTurn, Place, SharedConnections
from gripfast.stores.sql.conversation import Claims, Conversation
from gripfast.stores.sql.faults import closed
from gripfast.stores.sql.ports import Fault
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import until

SOON = 3.0


class Nowhere:
    where = "sql://nowhere"


class Idle:
    is_open: bool = True

    def __init__(self) -> None:
        self.conversation = Conversation(1, "", is_proxied=False)
        self.sent: list[Any] = []

    def close(self) -> None:
        self.is_open = False

    def send(self, queries: Any) -> None:
        self.sent.append(queries)


def _waiting(shared: SharedConnections, number: int, seconds: float) -> tuple[list[threading.Thread], list[Any]]:
    """Threads that wait, in this order, and what they get."""
    found: list[Any] = []

    def wait() -> None:
        now = boottime()
        found.append(shared._wait(now, now + seconds))

    threads = [threading.Thread(target=wait) for _ in range(number)]
    for place, thread in enumerate(threads, start=1):
        thread.start()
        until(lambda place=place: len(shared._waiting) == place)
    return threads, found


def _full() -> SharedConnections:
    """One that makes no more: its only connection is in use."""
    shared = SharedConnections(Nowhere(), 5.0, 1)  # type: ignore[arg-type]
    shared._open.add(in_use := Idle())  # type: ignore[arg-type]
    shared.in_use = in_use  # type: ignore[attr-defined]
    return shared


def test_who_is_told_of_a_connection_that_another_takes_waits_no_longer_than_it_may() -> None:
    shared = _full()
    threads, found = _waiting(shared, 4, 0.2)
    started = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() - started < SOON
        for place in list(shared._waiting):
            place.wake()
    assert found == [None] * 4
    assert not shared._waiting


def test_every_connection_that_is_put_back_reaches_one_who_waits() -> None:
    shared = _full()
    threads, found = _waiting(shared, 8, SOON)
    given = [Idle() for _ in threads]
    for each in given:
        shared.put_back(each)  # type: ignore[arg-type]
    for thread in threads:
        thread.join(SOON)
    assert set(found) == set(given)


def test_who_has_waited_long_is_handed_what_is_put_back_before_a_thread_that_just_came() -> None:
    """The thread that puts it back is awake and would always be the quicker one."""
    shared = _full()
    threads, found = _waiting(shared, 1, SOON)
    until(lambda: boottime() >= shared._waiting[0].hurries_at)
    shared.put_back(given := Idle())  # type: ignore[arg-type]
    assert shared._idle.empty()  # at once, whenever the other thread wakes up
    threads[0].join(SOON)
    assert found == [given]


def test_what_is_handed_to_a_thread_that_gives_up_is_known_to_it_once() -> None:
    shared = _full()
    place = Place(0.0)
    shared._waiting.append(place)
    shared.put_back(given := Idle())  # type: ignore[arg-type]
    assert shared._idle.empty()
    assert [shared._leave(place), shared._leave(place)] == [given, None]  # once


class Slow(Nowhere):
    """Its second connection takes long to make."""

    def __init__(self) -> None:
        self.dials = threading.Event()
        self.may_end = threading.Event()

    def dial(self, *_: Any, **__: Any) -> Any:
        self.dials.set()
        self.may_end.wait(SOON)
        raise LinkDown(closed(self.where))


def test_nobody_is_handed_a_connection_while_it_makes_one() -> None:
    """One slow dial would hold up everybody: the connection would lie with a thread that can't use it."""
    dialect = Slow()
    shared = SharedConnections(dialect, 5.0, 2)  # type: ignore[arg-type]
    only = Idle()
    shared._open.add(only)  # type: ignore[arg-type]
    now = boottime()
    other = threading.Thread(target=lambda: shared.borrow(now, now + SOON, False))
    other.start()
    assert dialect.dials.wait(SOON)
    shared.put_back(only)  # type: ignore[arg-type]
    now = boottime()
    assert [shared.borrow(now, now + SOON, False)] == [only]
    assert boottime() - now < SOON / 2
    dialect.may_end.set()
    other.join(SOON)


def test_an_interrupt_never_lends_a_connection_to_two() -> None:
    """At any instruction of handing it over."""
    point = 0
    while True:
        point += 1
        shared = _full()
        place = Place(0.0)
        shared._waiting.append(place)
        given = Idle()
        shared._idle.put(given)  # type: ignore[arg-type]
        if not interrupted(shared._hand_out, point, (SharedConnections._hand.__code__, Place.hand.__code__)):
            break
        has_idle = not shared._idle.empty()
        assert not (has_idle and place.leave() is not None), f"twice after an interrupt at {point}"
    assert point > 10


def interrupted(work: Any, point: int, within: tuple[Any, ...]) -> bool:
    """Whether it was: at so many instructions inside of these functions."""
    left = point

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = frame.f_code in within
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_nothing_is_handed_to_a_thread_that_has_left() -> None:
    shared = _full()
    place = Place(0.0)
    place.leave()
    shared._waiting.append(place)  # as it is seen by a thread that was about to hand it one
    shared.put_back(given := Idle())  # type: ignore[arg-type]
    assert [shared._idle.get_nowait()] == [given]
    assert place not in shared._waiting


def test_what_is_put_back_while_the_client_is_closed_is_closed() -> None:
    shared = _full()
    given = Idle()

    class Meanwhile(queue.SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            shared.close()
            super().put(item)

    shared._idle = Meanwhile()
    shared.put_back(given)  # type: ignore[arg-type]
    assert not given.is_open


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


@pytest.mark.parametrize("server", [postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def test_nothing_of_a_detached_lease_is_kept(server: Callable[[], SqlServer]) -> None:
    with gripfast.connect(server().lock_space()) as client:
        for number in range(3):
            client.lock(f"job-{number}").acquire().detach()
        assert dict(client._current().env.store._claims) == {}  # type: ignore[attr-defined]
