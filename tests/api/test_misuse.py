"""Whoever holds a lock wrong is told so, at the line that is wrong or in the log, with what to write instead."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import inspect
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gripfast
from support.both_colours import staged
from support.waiting import auntil, until


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@contextlib.asynccontextmanager
async def async_client() -> AsyncIterator[gripfast.AsyncClient]:
    async with gripfast.connect_async("memory://") as client:
        yield client


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    """What the log of leases, or of clients, says about this, at WARNING."""
    loggers = ("gripfast.lease", "gripfast.client")
    records = [each for each in caplog.records if each.name in loggers and each.levelno == logging.WARNING]
    return [text for each in records if what in (text := each.getMessage())]


def free(client: gripfast.Client, name: str = "job") -> None:
    until(lambda: client.inspect(name) is None)


# -- a lease that nobody keeps -----------------------------------------------------------------------------------------


def test_a_result_of_acquire_that_is_dropped_is_told_once(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.lock("job").acquire()
    (text,) = until(lambda: told(caplog, "was dropped"))
    assert text.startswith("lease on 'job' was dropped while it was held (it was acquired in ")
    assert f"{__file__}, line {inspect.currentframe().f_code.co_firstlineno + 3})" in text
    assert "`with lock:`" in text
    assert "release()" in text
    free(client)
    client.lock("another").acquire()
    until(lambda: len(told(caplog, "was dropped")) == 2)
    assert len(told(caplog, "'job' was dropped")) == 1


@staged
async def test_one_of_a_task_too(caplog: pytest.LogCaptureFixture) -> None:
    async with async_client() as client:
        await client.lock("job").acquire()
        (text,) = await auntil(lambda: told(caplog, "was dropped"))
        assert "`async with lock:`" in text
        assert f"(it was acquired in {__file__}, line " in text


def test_one_that_is_dropped_with_its_client_is_told(caplog: pytest.LogCaptureFixture) -> None:
    gripfast.connect("memory://").lock("job").acquire()
    until(lambda: len(told(caplog, "'job' was dropped")) == 1)


def test_one_of_a_task_that_is_dropped_with_client_and_loop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await gripfast.connect_async("memory://").lock("job").acquire()

    asyncio.run(main())
    until(lambda: len(told(caplog, "'job' was dropped")) == 1)


def test_a_lease_that_was_released_is_dropped_in_silence(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lease = client.lock("job").acquire()
    lease.release()
    del lease
    client.lock("next").acquire()
    until(lambda: told(caplog, "'next' was dropped"))
    assert told(caplog, "'job'") == []


def test_one_that_was_lost_is_told_as_lost_alone(client: gripfast.Client, caplog: pytest.LogCaptureFixture) -> None:
    lease = client.lock("job", ttl=0.05, renew=False).acquire()
    until(lambda: told(caplog, "lost (expired)"))
    del lease
    client.lock("next").acquire()
    until(lambda: told(caplog, "'next' was dropped"))
    assert len(told(caplog, "'job'")) == 1


def test_one_whose_client_is_closed_is_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    client = gripfast.connect("memory://")
    lease = client.lock("job").acquire()
    client.close()
    del lease
    gc.collect()
    assert told(caplog, "'job'") == []


@pytest.mark.parametrize("entered", ["with lock", "with lease", "with acquire"])
def test_an_interrupted_block_is_no_mistake(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture, entered: str
) -> None:
    """An interrupt may strike between the block and its exit: then what the block was entered with is dropped."""
    lock = client.lock("job")
    manager: Any = lock if entered == "with lock" else lock.acquire()
    leave = manager.__exit__
    manager.__enter__()
    del leave, manager
    free(client)
    client.lock("next").acquire()
    until(lambda: told(caplog, "'next' was dropped"))
    assert told(caplog, "'job'") == []


@staged
async def test_nor_is_one_of_a_task(caplog: pytest.LogCaptureFixture) -> None:
    async with async_client() as client:
        lock = client.lock("job")
        leave = lock.__aexit__
        await lock.__aenter__()
        del leave
        await auntil(lambda: _is_free(client, "job"))
        acquiring = client.lock("job").acquire()
        await acquiring.__aenter__()
        del acquiring
        await auntil(lambda: _is_free(client, "job"))
        await client.lock("next").acquire()
        await auntil(lambda: told(caplog, "'next' was dropped"))
        assert told(caplog, "'job'") == []


async def _is_free(client: gripfast.AsyncClient, name: str) -> bool:
    return await client.inspect(name) is None


AT_THE_END = """
import sys, gripfast
client = gripfast.connect("memory://")
lease = client.lock("kept until the end").acquire()
with client.lock("job"):
    if "interrupted" in sys.argv:
        raise KeyboardInterrupt
"""


@pytest.mark.parametrize("how", ["", "interrupted"])
def test_the_end_of_the_interpreter_is_no_mistake(how: str) -> None:
    command = [sys.executable, "-W", "error", "-c", AT_THE_END, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "dropped" not in ended.stderr
    assert (ended.returncode == 0) == (how == "")


def test_a_lease_is_true(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire()
    assert lease
    lease.release()


# -- `await` that was forgotten ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forget", "instead"),
    [
        (lambda lock: lock.acquire(), "acquire() of the lock 'job' was never awaited.*`lease = await lock.acquire()`"),
        (
            lambda lock: lock.try_acquire(),
            "try_acquire() of the lock 'job' was never awaited.*await lock.try_acquire()",
        ),
    ],
)
@staged
async def test_an_attempt_that_is_not_awaited_warns_as_a_coroutine_does(
    forget: Callable[[gripfast.AsyncLock], object], instead: str
) -> None:
    async with async_client() as client:
        with pytest.warns(RuntimeWarning, match=instead.replace("(", r"\(").replace(")", r"\)")):
            forget(client.lock("job"))


@pytest.mark.parametrize("forget", [lambda lock: lock.acquire(), lambda lock: lock.try_acquire()])
@staged
async def test_an_attempt_that_is_not_awaited_is_neither_true_nor_false(
    forget: Callable[[gripfast.AsyncLock], object],
) -> None:
    async with async_client() as client:
        with pytest.raises(TypeError, match=r"acquire\(\) of the lock 'job' must be awaited first: .*await"):
            if forget(client.lock("job")):
                raise AssertionError("nobody holds the lock")
        gc.collect()  # no second message: warnings are errors here


@pytest.mark.parametrize(
    ("forget", "instead"),
    [
        (lambda client: client.lock("job").acquire(), "lease = await lock.acquire()"),
        (lambda client: client.lock("job").try_acquire(), "lease = await lock.try_acquire()"),
        (lambda client: client.locks("job", "b").acquire(), "leases = await locks.acquire()"),
        (lambda client: client.semaphore("job", 2).acquire(), "await"),
        (lambda client: client.rwlock("job").write().acquire(), "await"),
        (lambda client: client.election("job").lead(), "await"),
    ],
)
@staged
async def test_what_a_lease_has_an_attempt_gets_when_it_is_awaited(
    forget: Callable[[gripfast.AsyncClient], Any], instead: str
) -> None:
    async with async_client() as client:
        attempt = forget(client)
        for name in ("held", "token", "release", "lost", "extend", "ensure_held"):
            with pytest.raises(AttributeError, match=rf" has no {name!r} until it is awaited: .*{re.escape(instead)}"):
                getattr(attempt, name)
        assert not hasattr(attempt, "held")
        assert "held" not in dir(attempt)
        lease = await attempt  # to look is not to use it
        assert lease is not None
        await lease.release()


@staged
async def test_an_attempt_is_as_good_as_a_coroutine() -> None:
    async with async_client() as client:
        lock = client.lock("job")
        for attempt in (lock.acquire(), lock.acquire(wait=1), lock.try_acquire()):
            lease = await attempt
            await lease.release()
        for attempt in (lock.acquire(wait=1), lock.try_acquire()):
            lease = await asyncio.create_task(attempt)
            await lease.release()
        lease = await asyncio.wait_for(lock.acquire(), 5)
        assert await asyncio.create_task(lock.try_acquire()) is None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lock.acquire(), 0.01)
        lock.acquire().close()
        await lease.release()
        async with lock.acquire(wait=1) as lease:
            assert lease.held


@staged
async def test_a_task_of_an_attempt_that_is_cancelled_leaves_nothing_behind() -> None:
    async with async_client() as client:
        lock = client.lock("job")
        before = asyncio.create_task(lock.acquire())
        before.cancel()  # before its first step
        async with lock:
            waiting = asyncio.create_task(lock.acquire())
            await auntil(lambda: _waiters(client, 1))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await auntil(lambda: _waiters(client, 0))
        with pytest.raises(asyncio.CancelledError):
            await before
        assert await client.inspect("job") is None


async def _waiters(client: gripfast.AsyncClient, count: int) -> bool:
    info = await client.inspect("job")
    return info is not None and info.waiters == count


# -- a block inside a block --------------------------------------------------------------------------------------------

TWICE = "lease on 'job' is in a `with` block already.*remove the inner `with`"


def test_a_lease_is_not_entered_twice(client: gripfast.Client) -> None:
    with client.lock("job").acquire() as lease:
        with pytest.raises(gripfast.ConfigurationError, match=TWICE), lease:
            raise AssertionError("entered twice")
        lease.ensure_held()
        assert client.inspect("job") is not None
    assert client.inspect("job") is None


def test_nor_is_that_of_a_lock_that_was_entered(client: gripfast.Client) -> None:
    with client.lock("job") as lease:
        with pytest.raises(gripfast.ConfigurationError, match=TWICE), lease:
            raise AssertionError("entered twice")
        lease.ensure_held()
    with contextlib.ExitStack() as stack:
        lease = stack.enter_context(client.lock("job"))
        with pytest.raises(gripfast.ConfigurationError, match=TWICE):
            stack.enter_context(lease)
        lease.ensure_held()
    assert client.inspect("job") is None


@staged
async def test_nor_is_that_of_a_task() -> None:
    async with async_client() as client:
        lock = client.lock("job")
        for manager in (lock, lock.acquire()):
            async with manager as lease:
                with pytest.raises(gripfast.ConfigurationError, match=TWICE):
                    async with lease:
                        raise AssertionError("entered twice")
                lease.ensure_held()
                assert await client.inspect("job") is not None
            assert await client.inspect("job") is None


@staged
async def test_the_wrong_kind_of_block_says_which_one_is_right() -> None:
    with gripfast.connect("memory://") as client:
        for plain in (client, client.lock("job"), client.lock("job").acquire()):
            with pytest.raises(
                TypeError, match=r"'__aenter__': write `with`\. For `async with`, .*gripfast\.connect_async"
            ):
                async with plain:
                    raise AssertionError("entered")
            assert not isinstance(plain, contextlib.AbstractAsyncContextManager)
        plain.release()
    async with async_client() as another:
        for awaited in (another, another.lock("job"), await another.lock("job").acquire()):
            with pytest.raises(TypeError, match="has no '__enter__': write `async with`"):
                with awaited:
                    raise AssertionError("entered")
            assert not isinstance(awaited, contextlib.AbstractContextManager)
        await awaited.release()


def test_a_reentrant_lock_has_a_lease_for_each_block(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    with lock.acquire(), lock.acquire() as inner, lock:
        assert inner.held


# -- locks in memory that nobody else sees -----------------------------------------------------------------------------


def test_two_clients_with_locks_of_their_own_are_told_so(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with client.lock("job"):
        another = gripfast.connect("memory://")
        for _ in range(3):  # told once
            with another.lock("job"), another.lock("free"):
                pass
        (text,) = told(caplog, "another client")
        assert text.startswith("'job' is held by another client of memory://")
        assert "connect('memory://name')" in text
        another.close()


def test_clients_that_share_their_locks_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with gripfast.connect("memory://shared") as one, gripfast.connect("memory://shared") as other, one.lock("job"):
        assert other.lock("job").try_acquire() is None
    assert told(caplog, "another client") == []


IN_A_CHILD = """
import multiprocessing, sys, gripfast

client = gripfast.connect(sys.argv[2])

def work():
    with client.lock("job", wait=0):
        pass

if __name__ == "__main__":
    with client.lock("in the parent"):
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(("url", "times"), [("memory://name", 1), ("memory://", 1), ("sqlite:///{}", 0)])
def test_a_process_with_locks_of_its_own_is_told_so(tmp_path: Path, method: str, url: str, times: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(IN_A_CHILD)
    command = [sys.executable, str(script), method, url.format(tmp_path / "locks.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr.count("this process has locks of its own")) == (0, times), ended.stderr


# -- what belongs to one process ---------------------------------------------------------------------------------------


def pass_on(thing: object, name: str = "") -> None:
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=f"{type(thing).__name__}.*can't be pickled.*Pass the URL") as refused:
            act(thing)
        assert f"the name {name!r}" in str(refused.value) or not name
        assert "spawn" in str(refused.value)


def test_what_can_not_be_pickled_says_what_to_pass_instead(client: gripfast.Client) -> None:
    pass_on(client)
    pass_on(client.lock("job"), "job")
    with client.lock("job") as lease:
        pass_on(lease, "job")


def test_it_says_how_the_other_process_makes_the_same(client: gripfast.Client) -> None:
    for thing, made in {
        client.lock("job"): "lock('job')",
        client.semaphore("job", limit=2): "semaphore('job', limit)",
        client.rwlock("job"): "rwlock('job')",
        client.once("job", keep=60): "once('job', keep=seconds)",
    }.items():
        with pytest.raises(TypeError, match=re.escape(f"gripfast.connect(url).{made} there. (")):
            pickle.dumps(thing)
    with client.lock("job") as lease, pytest.raises(TypeError, match=r"pass the text of lease\.detach\(\)"):
        pickle.dumps(lease)


@staged
async def test_nor_can_what_belongs_to_a_loop() -> None:
    async with async_client() as client:
        pass_on(client)
        pass_on(client.lock("job"), "job")
        async with client.lock("job") as lease:
            pass_on(lease, "job")


# -- names in messages -------------------------------------------------------------------------------------------------


def test_an_on_lost_that_raises_is_told_with_its_lock(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lease = client.lock("job", ttl=0.05, renew=False, on_lost=_raise).acquire()
    until(lambda: "on_lost of the lock 'job' raised an exception" in caplog.text)
    assert not lease.held


@staged
async def test_one_of_a_task_is_told_with_its_lock(caplog: pytest.LogCaptureFixture) -> None:
    async with async_client() as client:
        lease = await client.lock("job", ttl=0.05, renew=False, on_lost=_raise).acquire()
        await auntil(lambda: "on_lost of the lock 'job' raised an exception" in caplog.text)
        assert not lease.held


def _raise(*_: object) -> None:
    raise ValueError("planted")
