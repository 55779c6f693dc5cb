"""Whoever holds a lock wrong is told so, at the line that is wrong or in the log, with what to write instead."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import inspect
import logging
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

import gripfast
from gripfast.api.misuse import OF_CLIENTS, OF_LEASES, OF_LOCKS, OPTIONS
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
    """What the log of leases says about this, at WARNING."""
    records = [each for each in caplog.records if (each.name, each.levelno) == ("gripfast.lease", logging.WARNING)]
    return [text for each in records if what in (text := each.getMessage())]


def free(client: gripfast.Client, name: str = "job") -> None:
    until(lambda: client.inspect(name) is None)


# -- a lease that nobody keeps -----------------------------------------------------------------------------------------


def test_a_result_of_acquire_that_is_dropped_is_told_once(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.lock("job").acquire()
    (text,) = until(lambda: told(caplog, "was dropped"))
    assert text.startswith("lease on 'job' was dropped while it was held")
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
        with pytest.raises(TypeError, match=r"acquire\(\) of the lock 'job' has no truth before it is awaited.*await"):
            if forget(client.lock("job")):
                raise AssertionError("nobody holds the lock")
        gc.collect()  # no second message: warnings are errors here


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
        for plain in (client.lock("job"), client.lock("job").acquire()):
            with pytest.raises(TypeError, match=r"has no '__aenter__': write `with`; .*gripfast.connect_async\(\)"):
                async with plain:
                    raise AssertionError("entered")
            assert not isinstance(plain, contextlib.AbstractAsyncContextManager)
        plain.release()
    async with async_client() as another:
        for awaited in (another.lock("job"), await another.lock("job").acquire()):
            with pytest.raises(TypeError, match="has no '__enter__': write `async with`"):
                with awaited:
                    raise AssertionError("entered")
            assert not isinstance(awaited, contextlib.AbstractContextManager)
        await awaited.release()


def test_a_reentrant_lock_has_a_lease_for_each_block(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    with lock.acquire(), lock.acquire() as inner, lock:
        assert inner.held


# -- words of other libraries ------------------------------------------------------------------------------------------

Call = Callable[[Any], object]

WRONG_OPTIONS: list[tuple[Call, str]] = [
    (lambda client: client.lock("job").acquire(timeout=5), "acquire() has no 'timeout': write acquire(wait=5)"),
    (lambda client: client.lock("job").acquire(timeout=-1), "acquire() has no 'timeout': write acquire(wait=None)"),
    (lambda client: client.lock("job").acquire(blocking=False), "acquire() has no 'blocking': write try_acquire()"),
    (lambda client: client.lock("job").acquire(blocking_timeout=2), "write acquire(wait=2)"),
    (lambda client: client.lock("job").acquire(wiat=2), "acquire() has no 'wiat': did you mean 'wait'?"),
    (lambda client: client.lock("job").acquire(ttl=2), "Write client.lock(name, ttl=2)"),
    (lambda client: client.lock("job").acquire(True, 2), "acquire() takes `wait` alone: write acquire(wait=2)"),
    (lambda client: client.lock("job").acquire(True, -1), "write acquire(wait=None)"),
    (lambda client: client.lock("job").acquire(False, 2), "write try_acquire() not to wait"),
    (lambda client: client.lock("job").acquire(bogus=2), "acquire() has no 'bogus': it takes wait"),
    (lambda client: client.lock("job", timeout=9), "lock() has no 'timeout': write ttl=9"),
    (lambda client: client.lock("job", timeout=9), "or wait=9, the seconds to wait"),
    (lambda client: client.lock("job", blocking=False), "write wait=0 not to wait"),
    (lambda client: client.lock("job", blocking_timeout=2), "write wait=2"),
    (lambda client: client.lock("job", tll=4), "lock() has no 'tll': did you mean 'ttl'?"),
    (lambda client: client.lock("job", expire=4), "write ttl=4"),
    (lambda client: client.lock("job", auto_renewal=True), "write renew=True"),
    (lambda client: client.lock("job", bogus=4), "it takes name, ttl, renew"),
    (lambda client: client.locked("job", tll=4), "did you mean 'ttl'?"),
    (lambda client: client.locked("job", timeout=4), "write ttl=4"),
]


@pytest.mark.parametrize(("call", "words"), WRONG_OPTIONS)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_keyword_of_another_library_is_refused_with_the_right_one(
    connect: Callable[[str], Any], call: Call, words: str
) -> None:
    with pytest.raises(TypeError) as refused:
        call(connect("memory://"))
    assert words in str(refused.value)


def test_the_default_client_says_the_same() -> None:
    with pytest.raises(TypeError, match="did you mean 'ttl'"):
        gripfast.lock("job", tll=4)  # type: ignore[call-arg]


@pytest.mark.parametrize("wait", [True, False])
def test_a_truth_is_no_time_to_wait(client: gripfast.Client, wait: bool) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"write try_acquire\(\) not to wait"):
        client.lock("job").acquire(wait)


def test_a_text_is_no_time_in_python(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"not '30s'\. In Python write seconds as a number"):
        client.lock("job", ttl="30s")  # type: ignore[arg-type]


def one_of_each(connect: Callable[[str], Any]) -> dict[str, Any]:
    """A client, its lock and its lease; none of them is used."""
    client = connect("memory://")
    kind = gripfast.Lease if connect is gripfast.connect else gripfast.AsyncLease
    return {"Client": client, "Lock": client.lock("job"), "Lease": kind.__new__(kind)}


LACKS = {"Lock": OF_LOCKS, "Client": OF_CLIENTS, "Lease": OF_LEASES}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, lacks in LACKS.items() for name in lacks])
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_is_not_there_is_told_with_what_to_write(connect: Callable[[str], Any], kind: str, name: str) -> None:
    held = one_of_each(connect)[kind]
    for error in (AttributeError, TypeError):
        with pytest.raises(error, match=f"{kind} has no '{name}': .*(lease|lock|client|wait)") as refused:
            getattr(held, name)
    assert "{" not in str(refused.value)
    assert ("await" in str(refused.value)) == (connect is gripfast.connect_async and "{await_}" in LACKS[kind][name])
    assert not hasattr(held, name)
    assert not hasattr(type(held), name) or name == "__call__"  # of every class
    assert name not in dir(held)
    assert name not in dir(type(held))


def test_nor_is_it_there_in_a_mock() -> None:
    for kind in (gripfast.Lock, gripfast.AsyncLock, gripfast.Client, gripfast.AsyncClient, gripfast.Lease):
        mocked = create_autospec(kind, instance=True)
        assert mocked.__repr__
        assert [name for name in kind._lacks if hasattr(mocked, name)] in ([], ["__call__"])  # which every mock has


def test_a_lock_is_no_decorator(client: gripfast.Client) -> None:
    with pytest.raises(
        TypeError, match=r"Lock has no '__call__': to decorate a function, write `@client.locked\(name\)`"
    ):

        @client.lock("job")  # type: ignore[operator]
        def work() -> None: ...


def test_the_client_of_a_loop_is_closed_by_aclose() -> None:
    with pytest.raises(AttributeError, match=r"AsyncClient has no 'close': write `await client\.aclose"):
        gripfast.connect_async("memory://").close()  # type: ignore[attr-defined]


def test_minus_one_does_not_wait_for_ever(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="write None to wait for ever"):
        client.lock("job").acquire(-1)


def test_a_name_of_another_library_is_told_where_it_is_imported() -> None:
    with pytest.raises(ImportError, match=r"gripfast\.LockTimeout"):
        from gripfast import Timeout  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(AttributeError, match=r"gripfast\.LockTimeout"):
        gripfast.Timeout  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'bogus'"):
        from gripfast import bogus  # type: ignore[attr-defined] # noqa: F401
    assert not hasattr(gripfast, "Timeout")


def test_an_address_without_a_scheme_is_told_how_to_write_it() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="such as redis://localhost:6379"):
        gripfast.connect("localhost:6379")


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
        assert text.startswith("'job' is held through another client of memory://")
        assert "connect('memory://name')" in text
        another.close()


def test_clients_that_share_their_locks_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with gripfast.connect("memory://shared") as one, gripfast.connect("memory://shared") as other, one.lock("job"):
        assert other.lock("job").try_acquire() is None
    assert caplog.records == []


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


def test_what_nobody_thought_of_is_told_by_python(client: gripfast.Client) -> None:
    with pytest.raises(AttributeError, match="'Lock' object has no attribute 'bogus'"):
        client.lock("job").bogus  # type: ignore[attr-defined] # noqa: B018


def test_signatures_show_what_may_be_given() -> None:
    for lock in (gripfast.Lock, gripfast.AsyncLock):
        assert list(inspect.signature(lock.acquire).parameters) == ["self", "wait"]
    for client in (gripfast.Client, gripfast.AsyncClient):
        assert list(inspect.signature(client.lock).parameters)[:3] == ["self", "name", "ttl"]
        assert "wrong" not in inspect.signature(client.lock).parameters


def test_nothing_in_the_tables_is_right_here() -> None:
    for lock in (gripfast.Lock, gripfast.AsyncLock):
        assert [name for name in OF_LOCKS if name in dir(lock)] == []
    for client in (gripfast.Client, gripfast.AsyncClient):
        assert not set(inspect.signature(client.lock).parameters) & set(OPTIONS["lock"])


@pytest.mark.parametrize(
    ("kind", "given", "instead"),
    [
        (gripfast.Lock, [], "gripfast.lock(name)"),
        (gripfast.Lock, ["job"], "gripfast.lock(name)"),
        (gripfast.Lock, [gripfast.connect("memory://"), "job"], "connect(url).lock(name)"),
        (gripfast.AsyncLock, ["job"], "gripfast.async_lock(name)"),
        (gripfast.Client, [], "gripfast.connect(url)"),
        (gripfast.Client, ["memory://"], "gripfast.connect(url)"),
        (gripfast.AsyncClient, ["memory://"], "gripfast.connect_async(url)"),
    ],
)
def test_classes_that_are_called_as_those_of_others_say_how_to_make_one(
    kind: Callable[..., Any], given: list[Any], instead: str
) -> None:
    with pytest.raises(TypeError) as refused:
        kind(*given)
    assert instead in str(refused.value)


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
