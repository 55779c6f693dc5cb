"""The connections of a client to its SQL server, in both colours, over a wire whose other side is the test's."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gripfast.runtime.blocking import drive
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.sql.aio import AioLink
from gripfast.stores.sql.blocking import BlockingLink
from gripfast.stores.sql.faults import no_answer_in, none_free
from gripfast.stores.sql.listener import BlockingListener, ListenerThread
from gripfast.stores.sql.ports import Fault
from gripfast.stores.sql.queues import Queues
from stores.scripted_wire import HURRIED, ScriptedDialect, ask, rows, scripted
from support.waiting import auntil, until

TIMEOUT = 5.0
SHORT = 0.2
SOON = 2.0
"""Seconds: no request has run into its time-out by then."""


@pytest.fixture
def dialect() -> Iterator[ScriptedDialect]:
    with scripted() as dialect:
        yield dialect


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


class Blocking:
    """A link, and threads that ask over it."""

    def __init__(self, dialect: ScriptedDialect, threads: ThreadPoolExecutor, timeout: float, most: int) -> None:
        self.link = BlockingLink(dialect, timeout, most)
        self._threads = threads

    def ask(self, text: str, owner: str | None = None) -> "Future[Any]":
        return self._threads.submit(drive, self.link.request(ask(text), owner))


@pytest.fixture
def connect(dialect: ScriptedDialect, threads: ThreadPoolExecutor) -> Iterator[Callable[..., Blocking]]:
    made: list[Blocking] = []

    def connect(timeout: float = TIMEOUT, most: int = 4) -> Blocking:
        made.append(Blocking(dialect, threads, timeout, most))
        return made[-1]

    yield connect
    for each in made:
        drive(each.link.close())


# Threads --------------------------------------------------------------------------------------------------------------


def test_requests_one_after_the_other_share_a_connection(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect()
    for text in ("one", "two", "three"):
        asking = client.ask(text)
        dialect.peer(0).answers()
        assert rows(asking.result(HURRIED)) == text
    assert dialect.dials == 1


def test_a_request_that_would_have_to_wait_gets_a_connection_of_its_own(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect()
    slow = client.ask("slow")
    assert dialect.peer(0).hears() == "slow"
    quick = client.ask("quick")
    dialect.peer(1).answers()
    assert rows(quick.result(HURRIED)) == "quick"
    dialect.peer(0).says("row slow")
    assert rows(slow.result(HURRIED)) == "slow"


def test_no_more_connections_are_made_than_are_allowed(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect(SHORT, most=2)
    asking = [client.ask(f"{number}") for number in range(6)]
    answers = [each.result(HURRIED) for each in asking]
    assert all(isinstance(answer, Fault) for answer in answers)
    assert len(dialect.peers) <= 4  # two at a time: each is closed when its answer does not come


def test_an_answer_that_comes_too_late_is_nobodys(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect(SHORT)
    assert isinstance(client.ask("slow").result(HURRIED), Fault)
    assert dialect.peer(0).hears() == "slow"
    assert dialect.peer(0).hears() == "", "it is still open"
    asking = client.ask("next")
    dialect.peer(1).answers()
    assert rows(asking.result(HURRIED)) == "next"


def test_a_session_that_the_server_ended_is_asked_nothing_more(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect()
    asking = client.ask("one")
    dialect.peer(0).hears()
    dialect.peer(0).says("gone it was killed")
    fault = asking.result(HURRIED)
    assert isinstance(fault, Fault)
    assert fault.was_idle  # it may be asked again
    again = client.ask("one")
    dialect.peer(1).answers()
    assert rows(again.result(HURRIED)) == "one"


def test_one_dial_that_fails_is_enough_for_all_who_came_meanwhile(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect()
    dialect.is_down = True
    dialect.may_dial.clear()
    asking = [client.ask(f"{number}") for number in range(20)]
    until(lambda: all(each.running() for each in asking) and dialect.dials == 1)
    dialect.may_dial.set()
    assert all(isinstance(each.result(SOON), Fault) for each in asking)
    assert dialect.dials <= 3  # of those who had not got to ask yet


def test_what_is_known_of_a_claim_may_be_cleared_while_it_is_under_way(dialect: ScriptedDialect, connect: Any) -> None:
    """By whoever gives back what the owner may have: IndexError came out of acquire()."""
    client = connect()
    asking = client.ask("claim", "alice")
    dialect.peer(0).hears()
    client.link.claims["alice"].clear()
    dialect.peer(0).says("row granted")
    assert rows(asking.result(HURRIED)) == "granted"


def unanswered(link: Any) -> list[tuple[int, str]]:
    """The sessions in which claims of alice's were not answered."""
    claims = [claim for claim in link.claims["alice"] if not claim.is_over]
    return [(claim.conversation.session, claim.conversation.birth) for claim in claims]


def test_a_claim_that_was_not_answered_is_known_by_its_session(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect(SHORT)
    client.ask("claim", "alice").result(HURRIED)
    assert unanswered(client.link) == [(1, "1")]
    asking = client.ask("claim", "alice")
    dialect.peer(1).answers()
    asking.result(HURRIED)
    assert unanswered(client.link) == [(1, "1")]


def test_a_connection_of_ones_own_that_has_ended_is_not_lent_again(dialect: ScriptedDialect, connect: Any) -> None:
    link = connect().link
    first = drive(link.open())
    link.put_back(first)
    first.used_at = -1.0  # long ago
    dialect.peer(0).hangs_up()
    assert drive(link.open()).conversation.session == 2


# Hearing --------------------------------------------------------------------------------------------------------------


def test_a_push_wakes_the_first_in_line(dialect: ScriptedDialect, connect: Any, threads: ThreadPoolExecutor) -> None:
    link = connect().link
    inbox = BlockingInbox()
    link.queues.join("job", "alice", inbox)
    link.queues.names["channel"] = "job"
    listening = threads.submit(drive, link.listener.listen("channel"))
    assert dialect.peer(0).answers() == "listen channel"
    assert listening.result(HURRIED) is None
    assert link.listener.listens_to("channel")
    dialect.peer(0).says("push channel")
    assert inbox.take(HURRIED) is None


def test_the_first_in_line_asks_when_nothing_can_be_heard_any_more(
    dialect: ScriptedDialect, connect: Any, threads: ThreadPoolExecutor
) -> None:
    link = connect().link
    inbox = BlockingInbox()
    link.queues.join("job", "alice", inbox)
    listening = threads.submit(drive, link.listener.listen("channel"))
    dialect.peer(0).answers()
    listening.result(HURRIED)
    dialect.peer(0).hangs_up()
    assert inbox.take(HURRIED) is None
    until(lambda: not link.listener.listens_to("channel"))


def test_a_wish_to_hear_something_is_refused_at_once_when_the_listener_has_ended(dialect: ScriptedDialect) -> None:
    """Who waited for a lock while its client was closed waited for a whole request time-out."""
    listener = ListenerThread(dialect.dial(TIMEOUT, is_shared=True), dialect, Queues(), TIMEOUT)
    listener.start()
    listener.stop()
    until(lambda: not any(thread.name == "gripfast-listener" for thread in threading.enumerate()))
    started = time.monotonic()
    assert not listener.order("channel", True, TIMEOUT)
    assert time.monotonic() - started < SOON


def test_an_interrupt_right_after_its_start_leaves_no_listener_behind(
    dialect: ScriptedDialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knew of it: its thread and its connection stayed until the end of the process."""
    start = ListenerThread.start

    def start_and_be_interrupted(listener: ListenerThread) -> None:
        start(listener)
        raise KeyboardInterrupt

    monkeypatch.setattr(ListenerThread, "start", start_and_be_interrupted)
    listener = BlockingListener(dialect, TIMEOUT, Queues())
    with pytest.raises(KeyboardInterrupt):
        drive(listener.listen("channel"))
    listener.stop()
    until(lambda: not any(thread.name == "gripfast-listener" for thread in threading.enumerate()))


def test_a_listener_that_was_never_started_is_replaced(
    dialect: ScriptedDialect, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_interrupted(_: ListenerThread) -> None:
        raise KeyboardInterrupt

    listener = BlockingListener(dialect, TIMEOUT, Queues())
    with monkeypatch.context() as patched:
        patched.setattr(ListenerThread, "start", be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            drive(listener.listen("channel"))
    listening = threads.submit(drive, listener.listen("channel"))
    dialect.peer(1).answers()
    assert listening.result(HURRIED) is None
    listener.stop()


# Tasks ----------------------------------------------------------------------------------------------------------------


def on_a_loop(dialect: ScriptedDialect, play: Callable[[AioLink], Awaitable[None]], timeout: float = TIMEOUT) -> None:
    """Complaints of callbacks, which nobody would hear, are failures."""

    async def main() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        link = AioLink(dialect, timeout, 4)
        try:
            async with asyncio.timeout(4 * HURRIED):
                await play(link)
        finally:
            await link.close()
        assert not complaints

    asyncio.run(main())


def test_the_answer_to_a_cancelled_request_is_not_read_by_the_next(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        cancelled = asyncio.create_task(link.request(ask("one")))
        await auntil(lambda: dialect.peers)
        assert await asyncio.to_thread(dialect.peer(0).hears) == "one"
        cancelled.cancel()
        asking = asyncio.create_task(link.request(ask("two")))
        dialect.peer(0).says("row one")
        await asyncio.to_thread(dialect.peer(0).answers)
        assert rows(await asking) == "two"
        assert dialect.dials == 1

    on_a_loop(dialect, play)


def test_a_cancelled_request_that_has_not_left_does_not_leave(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        first = asyncio.create_task(link.request(ask("first")))
        await auntil(lambda: dialect.peers)
        assert await asyncio.to_thread(dialect.peer(0).hears) == "first"
        cancelled = asyncio.create_task(link.request(ask("cancelled"), "alice"))
        last = asyncio.create_task(link.request(ask("last")))
        await auntil(lambda: len(link._requests) == 2)
        cancelled.cancel()
        dialect.peer(0).says("row first")
        assert await asyncio.to_thread(dialect.peer(0).answers) == "last"
        assert [rows(await each) for each in (first, last)] == ["first", "last"]
        assert not link.claims

    on_a_loop(dialect, play)


def test_a_new_connection_is_read_though_it_has_the_number_of_an_old_one(dialect: ScriptedDialect) -> None:
    """The loop still watched for the descriptor of one that the server had ended, and nobody had told it."""

    async def play(link: AioLink) -> None:
        for number in range(5):
            asking = asyncio.create_task(link.request(ask("one")))
            await auntil(lambda number=number: len(dialect.peers) > number)
            await asyncio.to_thread(dialect.peer(number).hears)
            dialect.peer(number).says("gone it was killed")
            async with asyncio.timeout(SOON):
                assert isinstance(await asking, Fault)
            dialect.peer(number).hangs_up()

    on_a_loop(dialect, play)


def test_a_connection_that_was_cut_is_not_watched_any_more(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        for number in range(5):
            channel = await link.open()
            assert not isinstance(channel, Fault)
            channel.send(ask("one"))
            assert await asyncio.to_thread(dialect.peer(number).answers) == "one"
            async with asyncio.timeout(SOON):
                assert rows(await channel.answer(link.now() + TIMEOUT)) == "one"
            channel.cut()
            del channel
            assert await asyncio.to_thread(dialect.peer(number).hears) == ""

    on_a_loop(dialect, play)


def test_a_connection_that_is_made_after_the_end_is_closed(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        dialect.may_dial.clear()
        asking = [asyncio.create_task(link.request(ask("one"))), asyncio.create_task(link.open())]
        await auntil(lambda: dialect.dials == 2)
        await link.close()
        dialect.may_dial.set()
        async with asyncio.timeout(SOON):
            assert all([isinstance(await each, Fault) for each in asking])
        for number in range(2):
            assert await asyncio.to_thread(dialect.peer(number).hears) == ""
        assert isinstance(await link.request(ask("two")), Fault)
        assert dialect.dials == 2

    on_a_loop(dialect, play)


def test_a_task_that_is_cancelled_while_it_begins_to_listen_is_in_nobodys_way(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        cancelled = asyncio.create_task(link.listener.listen("one"))
        await auntil(lambda: dialect.peers)
        assert await asyncio.to_thread(dialect.peer(0).hears) == "listen one"
        cancelled.cancel()
        await asyncio.wait([cancelled])
        listening = asyncio.create_task(link.listener.listen("two"))
        dialect.peer(0).says("row one")
        assert await asyncio.to_thread(dialect.peer(0).answers) == "listen two"
        assert await listening is None
        assert dialect.dials == 1

    on_a_loop(dialect, play)


def test_whatever_goes_wrong_while_a_connection_is_made_is_an_answer(
    dialect: ScriptedDialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver's own surprise left every later request without one."""

    async def play(link: AioLink) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(dialect, "dial", lambda *_, **__: 1 // 0)
            async with asyncio.timeout(SOON):
                assert isinstance(await link.request(ask("one")), Fault)
        asking = asyncio.create_task(link.request(ask("two")))
        await auntil(lambda: dialect.peers)
        await asyncio.to_thread(dialect.peer(0).answers)
        assert rows(await asking) == "two"

    on_a_loop(dialect, play)


def test_two_urgent_requests_at_once_leave_no_connection_that_nobody_uses(dialect: ScriptedDialect) -> None:
    async def play(link: AioLink) -> None:
        dialect.may_dial.clear()
        urgent = [asyncio.create_task(link.request(ask(text), is_urgent=True)) for text in ("one", "two")]
        await auntil(lambda: dialect.dials == 2)
        dialect.may_dial.set()
        await auntil(lambda: len(dialect.peers) == 2)
        for number in range(2):
            await asyncio.to_thread(dialect.peer(number).answers)
        assert sorted([rows(await each) for each in urgent]) == ["one", "two"]
        assert link._alive == {link._reserve, *link._shared}

    on_a_loop(dialect, play)


def test_a_request_whose_time_is_over_never_leaves(dialect: ScriptedDialect, connect: Any) -> None:
    client = connect()
    first = client.ask("first")
    dialect.peer(0).answers()
    first.result(HURRIED)
    late = drive(client.link.request(ask("late"), "alice", client.link.now() - 1.0))
    assert isinstance(late, Fault)
    assert not late.was_sent

    async def play(link: AioLink) -> None:
        task = asyncio.create_task(link.request(ask("first")))
        await auntil(lambda: len(dialect.peers) == 2)
        await asyncio.to_thread(dialect.peer(1).answers)
        await task
        late = await link.request(ask("late"), "alice", link.now() - 1.0)
        assert isinstance(late, Fault)
        assert not late.was_sent
        assert not link.claims

    on_a_loop(dialect, play)
    assert not client.link.claims


@pytest.mark.parametrize(("seconds", "told"), [(4.99999, "5 s"), (0.3751, "0.375 s"), (3600.0, "3600 s")])
def test_what_was_left_of_a_time_out_is_told_as_the_time_out(seconds: float, told: str) -> None:
    assert f"within {told}" in str(no_answer_in("here", seconds).error)
    assert f"within {told}" in str(none_free("here", 4, seconds).error)
