"""Observers: who can be one, and on which thread they are called."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import gripfast
from api.observer_stage import THREAD, WHOLE, threads
from gripfast.compat import asyncio as compat_asyncio
from gripfast.compat import threading as compat_threading
from gripfast.testing.conformance.test_forks import forks, in_a_child
from gripfast.testing.observing import Recorder
from support.waiting import auntil, until


class Coroutine:
    async def granted(self, event: gripfast.Event) -> None: ...


@pytest.mark.parametrize(
    ("observers", "message"),
    [
        (Recorder(), "must be a list"),
        ("metrics", "must be a list"),
        ([Recorder], r"not a class: write Recorder\(\)"),
        ([print], "some of the methods claimed, granted"),
        ([type("Odd", (), {"granted": 5})()], "some of the methods"),
        ([Coroutine()], r"Coroutine\.granted must be a plain function"),
    ],
)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_is_no_observer_is_refused(connect: Any, observers: Any, message: str) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=message):
        connect("memory://", observers=observers)


@pytest.mark.parametrize("target", ["memory://?observers=x", ["redis://a?observers=x", "redis://b", "redis://c"]])
def test_a_url_can_have_no_observers(target: Any) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"connect\(url, observers="):
        gripfast.connect(target)


@pytest.mark.parametrize("none", [None, [], ()])
def test_there_may_be_none(none: Any) -> None:
    with gripfast.connect("memory://", observers=none) as client, client.lock("job"):
        assert threads() == []


def test_an_observer_may_have_some_of_the_methods_only() -> None:
    class Grants:
        def __init__(self) -> None:
            self.names: list[str] = []

        def granted(self, event: gripfast.Event) -> None:
            self.names.append(event.name)

    grants = Grants()
    with gripfast.connect("memory://", observers=[grants]) as client, client.lock("job"):
        pass
    assert grants.names == ["job"]


@pytest.mark.parametrize("group", [5, "", "x" * 513, "\ud800"])
def test_a_group_is_short_text(observed: gripfast.Client, group: Any) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="a group must"):
        observed.lock("job", group=group)
    with pytest.raises(gripfast.ConfigurationError, match="a group must"):
        observed.locked("job", group=group)


def test_the_thread_comes_with_the_first_claim_and_goes_with_the_client(seen: Recorder) -> None:
    with gripfast.connect("memory://", observers=[seen]) as client:
        assert client.inspect("job") is None
        assert threads() == []
        with client.lock("job"):
            (thread,) = threads()
        assert thread.daemon
    until(lambda: threads() == [])
    assert seen.kinds("job") == WHOLE


def test_it_goes_with_a_client_that_nobody_closes(seen: Recorder) -> None:
    gripfast.connect("memory://", observers=[seen]).lock("job").acquire().release()
    until(lambda: threads() == [])
    assert seen.kinds("job") == WHOLE


def test_all_methods_are_called_on_that_thread() -> None:
    called: set[str] = set()

    class Where(Recorder):
        def _note(self, event: gripfast.Event) -> None:
            called.add(threading.current_thread().name)

        claimed = granted = refused = renewed = lost = released = unreachable = _note

    async def main() -> None:
        async with gripfast.connect_async("memory://", observers=[Where()]) as client, client.lock("job"):
            assert await client.lock("job").try_acquire() is None

    with gripfast.connect("memory://", observers=[Where()]) as client:
        client.lock("job", max_hold=0.02).acquire().lost.wait(5)
    asyncio.run(main())
    assert called == {THREAD}


@pytest.mark.filterwarnings("ignore:lease on 'job' was dropped:ResourceWarning")
def test_an_async_client_whose_loop_is_gone_tells_the_end_of_its_leases(seen: Recorder) -> None:
    async def main() -> Any:
        client = gripfast.connect_async("memory://", observers=[seen])
        return await client.lock("job").acquire()

    lease = asyncio.run(main())
    until(lambda: seen.kinds("job") == WHOLE[:2])
    del lease
    until(lambda: seen.kinds("job") == WHOLE)
    until(lambda: threads() == [])


def test_a_decorated_coroutine_of_a_plain_client_is_told(seen: Recorder, observed: gripfast.Client) -> None:
    @observed.locked("job:{number}")
    async def work(number: int) -> None: ...

    asyncio.run(work(5))
    observed.close()
    assert seen.kinds("job:5") == WHOLE
    assert {event.group for event in seen.of("job:5")} == {"job:{number}"}


def test_locks_in_the_shape_of_threading_are_told(seen: Recorder, observed: gripfast.Client) -> None:
    with compat_threading.Lock(observed, "job", group="jobs"):
        pass
    until(lambda: seen.kinds("job") == WHOLE)
    assert {event.group for event in seen.of("job")} == {"jobs"}


def test_locks_in_the_shape_of_asyncio_are_told(seen: Recorder) -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://", observers=[seen]) as client:
            lock = compat_asyncio.Lock(client, "job")
            await lock.acquire()
            lock.release()
            await auntil(lambda: seen.kinds("job") == WHOLE)
            assert seen.of("job", "released")[0].reason is None

    asyncio.run(main())


@forks
def test_a_forked_child_has_a_thread_and_a_queue_of_its_own(seen: Recorder, observed: gripfast.Client) -> None:
    with observed.lock("job"):
        until(lambda: seen.kinds("job") == WHOLE[:2])
        seen.events.clear()

        def work() -> Any:
            with observed.lock("other job"):
                pass
            observed.close()
            return [[event.name, event.kind] for event in seen.events]

        assert in_a_child(work) == [["other job", kind] for kind in WHOLE]
    until(lambda: seen.kinds("job") == WHOLE[2:])
    assert seen.kinds("other job") == []
