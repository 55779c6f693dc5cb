"""Waits that can't end well are told of in the log; a time-out names who holds the lock in this process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import gripfast
from gripfast.core import acquire
from gripfast.runtime import waits
from gripfast.testing import World
from gripfast.testing.colours import renewal_of
from gripfast.testing.conformance.test_forks import forks, in_a_child
from support.both_colours import staged
from support.waiting import until

ITSELF = "It acquired this lock itself"
BLOCKS = "An event loop runs in this thread"


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is as long as that."""
    monkeypatch.setattr(waits, "TELL_AFTER", 0.05)


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    """What the log of leases says about this, at WARNING."""
    records = [each for each in caplog.records if (each.name, each.levelno) == ("gripfast.lease", logging.WARNING)]
    return [text for each in records if what in (text := each.getMessage())]


def test_a_second_is_what_a_wait_may_take() -> None:
    assert waits.TELL_AFTER == 1.0


@pytest.mark.usefixtures("soon")
def test_a_thread_that_waits_for_itself_is_told_once_and_waits_on(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lock = client.lock("job", ttl=0.3)  # so that it asks again meanwhile
    lease = lock.acquire()

    def let_go() -> None:
        until(lambda: told(caplog, ITSELF))
        for _ in range(3):
            until(renewal_of(lease))
        lease.release()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(let_go)
        lock.acquire(wait=10).release()
    (text,) = told(caplog, ITSELF)
    assert text.startswith(f"thread {threading.current_thread().name!r} has waited for the lock 'job' for 0.05 s. ")
    assert "reentrant=True" in text


@pytest.mark.usefixtures("soon")
def test_a_block_inside_a_block_of_another_client_waits_for_itself(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with gripfast.connect("memory://both") as one, gripfast.connect("memory://both") as other:
        with one.lock("job"), pytest.raises(gripfast.LockTimeout):
            other.lock("job").acquire(wait=0.2)
    assert len(told(caplog, ITSELF)) == 1


@pytest.mark.usefixtures("soon")
def test_another_thread_does_not_wait_for_itself(client: gripfast.Client, caplog: pytest.LogCaptureFixture) -> None:
    """Not even if it got the id of the thread that acquired the lock, and has ended."""
    leases: list[gripfast.Lease] = []
    first = threading.Thread(target=lambda: leases.append(client.lock("job").acquire()))
    first.start()
    first.join()
    for _ in range(3):
        second = threading.Thread(target=lambda: client.lock("job").try_acquire() or _times_out(client))
        second.start()
        second.join()
    assert told(caplog, "has waited") == []


def _times_out(client: gripfast.Client) -> None:
    with contextlib.suppress(gripfast.LockTimeout):
        client.lock("job").acquire(wait=0.1)


@pytest.mark.usefixtures("soon")
@staged
async def test_a_task_that_waits_for_itself_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with gripfast.connect_async("memory://") as client:
        async with client.lock("job"):
            with pytest.raises(gripfast.LockTimeout):
                await client.lock("job").acquire(wait=0.2)
            assert len(told(caplog, ITSELF)) == 1
            caplog.clear()
            with pytest.raises(gripfast.LockTimeout):
                await asyncio.create_task(client.lock("job").acquire(wait=0.2))
            assert told(caplog, "has waited") == []


@pytest.mark.usefixtures("soon")
@staged
async def test_a_wait_that_blocks_an_event_loop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with gripfast.connect("memory://") as client, ThreadPoolExecutor(1) as pool:
        lease = pool.submit(client.lock("job").acquire).result()
        with pytest.raises(gripfast.LockTimeout):
            await asyncio.to_thread(client.lock("job").acquire, wait=0.2)
        assert told(caplog, BLOCKS) == []
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.2)
        (text,) = told(caplog, BLOCKS)
        assert "'job'" in text
        assert "gripfast.connect_async()" in text
        assert ITSELF not in text
        lease.release()


@pytest.mark.usefixtures("soon")
@staged
async def test_who_waits_for_itself_in_an_event_loop_is_told_that_first(caplog: pytest.LogCaptureFixture) -> None:
    """As in a notebook, whose cells run in a loop: that alone would not explain why the wait does not end."""
    with gripfast.connect("memory://") as client, client.lock("job"):
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.2)
    (text,) = told(caplog, "has waited")
    assert 0 < text.index(ITSELF) < text.index(BLOCKS)


@pytest.mark.usefixtures("soon")
@staged
async def test_a_short_wait_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    with gripfast.connect("memory://") as client, client.lock("job"):
        errors = []
        for _ in range(3):
            try:
                client.lock("job").acquire(wait=0.001)
            except gripfast.LockTimeout as error:
                errors.append(error)  # which keeps the frames of the wait
        await asyncio.sleep(0)
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.2)
    assert len(told(caplog, "has waited")) == 1


def test_a_time_out_names_the_thread_of_this_process_that_holds_the_lock(client: gripfast.Client) -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="holder") as pool:
        lease = pool.submit(client.lock("job", label="by hand").acquire).result()
        with pytest.raises(gripfast.LockTimeout, match=r"held by this process \(thread 'holder_0'\), pid \d+ on"):
            client.lock("job").acquire(wait=0.01)
    assert "held by this process (thread 'holder_0', which has ended), pid" in _refusal(client)
    del pool
    until(lambda: "held by this process, pid" in _refusal(client))
    lease.release()


def _refusal(client: gripfast.Client) -> str:
    gc.collect()
    with pytest.raises(gripfast.LockTimeout) as refused:
        client.lock("job").acquire(wait=0)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    return str(refused.value)


@staged
async def test_a_time_out_names_the_task_too() -> None:
    async with gripfast.connect_async("memory://") as client:
        async with client.lock("job"):
            name = asyncio.current_task().get_name()
            with pytest.raises(
                gripfast.LockTimeout, match=rf"this process \(task '{name}': use one client and reentrant"
            ):
                await client.lock("job").acquire(wait=0.01)


def test_a_time_out_because_of_another_process_does_not(sqlite_url: str) -> None:
    script = f"import gripfast, sys\nwith gripfast.connect({sqlite_url!r}).lock('job'): sys.stdin.read()"
    with (
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as other,
        gripfast.connect(sqlite_url) as client,
    ):
        until(lambda: client.inspect("job"), within=20)
        with pytest.raises(gripfast.LockTimeout, match=f"held by pid {other.pid} on"):
            client.lock("job").acquire(wait=0.01)
        other.communicate()


@forks
def test_a_forked_child_does_not_take_its_parent_for_itself(sqlite_url: str) -> None:
    def refusal() -> str:
        with gripfast.connect(sqlite_url) as client:
            client.lock("job").acquire(wait=0.01)
        return "acquired"

    with gripfast.connect(sqlite_url) as client, client.lock("job"):
        assert f"held by pid {os.getpid()} on" in in_a_child(refusal)


@staged
async def test_a_reentrant_lock_for_threads_lets_no_other_task_in() -> None:
    """Tasks share a thread. The second one would have to wait, and blocks the loop: not to wait shows it."""
    with gripfast.connect("memory://") as client:
        lock = client.lock("job", reentrant=True)
        with lock, lock:
            again = lock.try_acquire()
            assert again is not None
            again.release()

            async def another() -> gripfast.Lease | None:
                return lock.try_acquire()

            assert await asyncio.create_task(another()) is None


def test_who_waits_for_itself_is_told_how_to_acquire_twice(client: gripfast.Client) -> None:
    with client.lock("job"):
        assert "use one client and reentrant=True to acquire it twice" in _refusal(client)
        with ThreadPoolExecutor(1) as pool:
            assert "reentrant" not in pool.submit(_refusal, client).result()


BOTH_TIMES = "use one client, and reentrant=True both times"


def test_who_acquires_it_twice_but_is_reentrant_only_once_is_told(client: gripfast.Client) -> None:
    with client.lock("job"), pytest.raises(gripfast.LockTimeout, match=BOTH_TIMES):
        client.lock("job", reentrant=True).acquire(wait=0)
    with client.lock("job", reentrant=True):
        assert "reentrant=True" in _refusal(client)


@staged
async def test_a_task_that_is_reentrant_only_once_is_told() -> None:
    async with gripfast.connect_async("memory://") as client:
        async with client.lock("job"):
            with pytest.raises(gripfast.LockTimeout, match=BOTH_TIMES):
                await client.lock("job", reentrant=True).acquire(wait=0.01)


@staged
async def test_another_task_of_its_thread_is_not_told_so() -> None:
    """Both are re-entrant: that does not let one task in because another one holds the lock."""
    with gripfast.connect("memory://") as client:
        lock = client.lock("job", reentrant=True)

        async def another() -> str:
            with pytest.raises(gripfast.LockTimeout) as refused:
                lock.acquire(wait=0)
            return str(refused.value)

        with lock:
            assert "reentrant" not in await asyncio.create_task(another())


# -- a store that can't be reached -------------------------------------------------------------------------------------

SILENCE = "waiting for 'job': "
NOBODY = "localhost:1"
"""Nobody listens there."""
NOWHERE = [
    f"redis://{NOBODY}/0",
    f"redlock://{NOBODY},localhost:2,localhost:3",
    f"redis+sentinel://{NOBODY}/mymaster",
    f"redis+cluster://{NOBODY}",
    f"postgresql://{NOBODY}/locks",
    f"mysql://{NOBODY}/locks",
    f"etcd://{NOBODY}",
]


@pytest.mark.parametrize("url", NOWHERE)
@staged
async def test_a_store_that_can_not_be_reached_is_told_once_for_each_attempt(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "TELL_AFTER", 0.05)
    with gripfast.connect(url, connect_patience=0.4) as client, pytest.raises(gripfast.StoreUnavailable):
        await asyncio.to_thread(client.lock("job", group="jobs").acquire)
    async with gripfast.connect_async(url, connect_patience=0.4) as aclient:
        with pytest.raises(gripfast.StoreUnavailable):
            await aclient.lock("job").acquire()
    texts = told(caplog, SILENCE)
    assert len(texts) == 2
    for text in texts:
        assert "localhost:1" in text
        assert "Connection refused" in text
        assert text.endswith("Gripfast goes on trying for up to 0 s")
    assert ("jobs", "job") in {(each.gripfast_group, each.gripfast_name) for each in caplog.records}  # type: ignore[attr-defined]


@pytest.mark.parametrize("wait", [None, 30])
def test_it_is_told_in_time_to_do_something_about_it(caplog: pytest.LogCaptureFixture, wait: float | None) -> None:
    with World() as world, world.outage(), world.clock.fast_forward(), pytest.raises(gripfast.StoreUnavailable):
        gripfast.lock("job").acquire(wait)
    (text,) = told(caplog, SILENCE)
    assert re.search(r"for up to 2[5-8] s$", text)


def test_a_store_that_is_away_for_a_moment_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    with World() as world, world.outage(seconds=0.9), world.clock.fast_forward():
        gripfast.lock("job").acquire().release()
    with World() as world, world.hold("job", seconds=0.9), world.clock.fast_forward():
        gripfast.lock("job").acquire().release()
    assert told(caplog, SILENCE) == []
