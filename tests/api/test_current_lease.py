"""`gripfast.current_lease()`: a decorated function finds its lease, and nobody else does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast import AsyncLease, ConfigurationError, Lease, LeaseLost, current_lease
from gripfast.api import current
from support.sweeping import Action, sweep_interrupts


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


def is_none_here() -> bool:
    try:
        current_lease()
    except ConfigurationError:
        return True
    return False


# -- inside and outside ------------------------------------------------------------------------------------------------


def test_a_plain_function_finds_its_lease(client: gripfast.Client) -> None:
    @client.locked("report:{user_id}")
    def report(user_id: int) -> None:
        lease = current_lease(Lease)
        info = client.inspect("report:7")
        assert info is not None
        assert (lease.name, lease.token, lease.owner) == ("report:7", info.token, info.owner)
        assert lease.held
        assert current_lease() is lease
        lease.extend()

    report(7)


def test_a_coroutine_function_of_a_blocking_client_finds_its_lease(client: gripfast.Client) -> None:
    @client.locked("report:{user_id}")
    async def report(user_id: int) -> None:
        lease = current_lease(AsyncLease)
        await asyncio.sleep(0)
        assert current_lease() is lease
        info = client.inspect("report:7")
        assert info is not None
        assert (lease.name, lease.token) == ("report:7", info.token)
        await lease.extend()

    asyncio.run(report(7))


def test_a_coroutine_function_of_an_async_client_finds_its_lease() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:

            @client.locked("job")
            async def job() -> int:
                return current_lease(AsyncLease).token

            assert await job() > 0
            assert is_none_here()

    asyncio.run(main())


def test_outside_a_decorated_function_there_is_none(client: gripfast.Client) -> None:
    with pytest.raises(ConfigurationError, match=r"decorated with @client\.locked"):
        current_lease()
    client.locked("job")(lambda: None)()
    assert is_none_here()


def test_a_block_does_not_set_it(client: gripfast.Client) -> None:
    with client.lock("job"), pytest.raises(ConfigurationError, match="with lock as lease"):
        current_lease()


def test_the_other_kind_of_lease_is_refused_by_name(client: gripfast.Client) -> None:
    @client.locked("job")
    def plain() -> None:
        current_lease(AsyncLease)

    @client.locked("job")
    async def coroutine() -> None:
        current_lease(Lease)

    with pytest.raises(ConfigurationError, match=r"current_lease\(Lease\)"):
        plain()
    with pytest.raises(ConfigurationError, match=r"current_lease\(AsyncLease\)"):
        asyncio.run(coroutine())


def test_a_lost_lease_is_found_and_says_so(client: gripfast.Client) -> None:
    @client.locked("job", ttl=0.05, renew=False)
    def job() -> None:
        current_lease(Lease).lost.wait()
        current_lease().ensure_held()

    with pytest.raises(LeaseLost) as lost:
        job()
    assert lost.value.reason == "expired"


def test_a_lease_that_the_function_released_itself_is_still_its_own(client: gripfast.Client) -> None:
    @client.locked("outer")
    def outer() -> None:
        inner()

    @client.locked("inner")
    def inner() -> None:
        current_lease(Lease).release()
        assert (current_lease().name, current_lease().held) == ("inner", False)

    outer()


# -- one inside another ------------------------------------------------------------------------------------------------


def test_the_innermost_function_counts(client: gripfast.Client) -> None:
    names = []

    @client.locked("number:{n}")
    def count(n: int) -> None:
        names.append(current_lease().name)
        if n:
            count(n - 1)
        names.append(current_lease().name)

    count(2)
    assert names == ["number:2", "number:1", "number:0", "number:0", "number:1", "number:2"]
    assert is_none_here()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_after_an_exception_it_is_that_of_the_outer_function_again(
    client: gripfast.Client, error: type[BaseException]
) -> None:
    @client.locked("outer")
    def outer() -> None:
        with pytest.raises(error):
            inner()
        assert current_lease().name == "outer"

    @client.locked("inner")
    def inner() -> None:
        raise error

    outer()
    assert is_none_here()


def test_a_plain_function_inside_a_coroutine_function_has_its_own(client: gripfast.Client) -> None:
    @client.locked("plain")
    def plain() -> str:
        return current_lease(Lease).name

    @client.locked("coroutine")
    async def coroutine() -> list[str]:
        return [current_lease(AsyncLease).name, plain(), current_lease(AsyncLease).name]

    assert asyncio.run(coroutine()) == ["coroutine", "plain", "coroutine"]


def test_tasks_of_one_function_each_have_their_own(client: gripfast.Client) -> None:
    @client.locked("number:{n}")
    async def job(n: int) -> str:
        await asyncio.sleep(0)
        return current_lease().name

    async def main() -> list[str]:
        return await asyncio.gather(*(job(n) for n in range(3)))

    assert asyncio.run(main()) == ["number:0", "number:1", "number:2"]


# -- who else sees it --------------------------------------------------------------------------------------------------


def test_a_thread_that_the_function_starts_has_none(client: gripfast.Client) -> None:
    found = []

    @client.locked("job")
    def job() -> None:
        thread = threading.Thread(target=lambda: found.append(is_none_here()))
        thread.start()
        thread.join()

    job()
    assert found == [True]


def test_a_task_that_the_function_starts_has_it_until_the_function_ends(client: gripfast.Client) -> None:
    names: list[str] = []

    async def look(ended: asyncio.Event) -> None:
        kept = current_lease()  # which does not make the call longer
        names.append(kept.name)
        names.append(await asyncio.to_thread(lambda: current_lease().name))
        looked.set()
        await ended.wait()
        with pytest.raises(ConfigurationError, match="has ended"):
            current_lease()
        await job(None)  # calls from here are as good as any
        with pytest.raises(ConfigurationError):
            current_lease()

    @client.locked("job")
    async def job(ended: asyncio.Event | None) -> asyncio.Task[None] | None:
        if ended is None:
            return None
        task = asyncio.create_task(look(ended))
        await looked.wait()
        return task

    async def main() -> None:
        ended = asyncio.Event()
        task = await job(ended)
        assert task is not None
        ended.set()
        await task

    looked = asyncio.Event()
    asyncio.run(main())
    assert names == ["job", "job"]


def test_a_task_that_outlives_the_function_finds_no_lease_of_an_outer_function(client: gripfast.Client) -> None:
    """That would be the lease of another lock."""

    @client.locked("outer")
    async def outer() -> None:
        task, may_look = await inner()
        may_look.set()
        assert await task
        assert current_lease().name == "outer"

    @client.locked("inner")
    async def inner() -> tuple[asyncio.Task[bool], asyncio.Event]:
        may_look = asyncio.Event()
        return asyncio.create_task(look(may_look)), may_look

    async def look(may_look: asyncio.Event) -> bool:
        await may_look.wait()
        return is_none_here()

    asyncio.run(outer())


# -- what it keeps -----------------------------------------------------------------------------------------------------


def test_no_context_keeps_a_lease_alive(client: gripfast.Client) -> None:
    leases: list[weakref.ref[Any]] = []

    @client.locked("job")
    async def job(may_end: asyncio.Event) -> asyncio.Task[bool]:
        leases.append(weakref.ref(current_lease()))
        return asyncio.create_task(may_end.wait())

    async def main() -> None:
        may_end = asyncio.Event()
        task = await job(may_end)
        assert leases[0]() is None
        may_end.set()
        await task

    gc.disable()  # its end must be enough
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_call_whose_end_never_ran_keeps_nothing(client: gripfast.Client) -> None:
    """Two interrupts, one after the other, can do that."""
    lease = client.lock("job").acquire()
    known, context = weakref.ref(lease), contextvars.copy_context()
    context.run(current._Call(lease).begin)
    assert context.run(current_lease) is lease
    lease.release()
    del lease
    assert known() is None
    assert context.run(is_none_here)


def test_calls_from_tasks_of_ended_calls_do_not_pile_up(client: gripfast.Client) -> None:
    chain: list[int] = []

    @client.locked("job")
    async def job(left: int) -> None:
        chain.append(_chained())
        if left:
            tasks.append(asyncio.create_task(job(left - 1)))  # gets the lock when this call has ended

    async def main() -> None:
        tasks.append(asyncio.create_task(job(20)))
        for task in tasks:
            await task

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert len(chain) == 21
    assert max(chain) <= 2


def _chained() -> int:
    call, length = current._innermost.get(), 0
    while call is not None:
        call, length = call._outer, length + 1
    return length


# -- interrupts --------------------------------------------------------------------------------------------------------


class Nested:
    """A trial: an interrupt in the inner call that the outer function catches; then it looks for its own lease."""

    def __init__(self, client: gripfast.Client) -> None:
        self._client = client
        self._problem: str | None = None

    def begin(self) -> Action:
        self._problem = None
        inner = self._client.locked("inner")(lambda: None)

        def outer() -> None:
            try:
                inner()
            except KeyboardInterrupt:
                self._look()
                raise
            self._look()

        locked: Callable[[], None] = self._client.locked("outer")(outer)
        return locked

    def _look(self) -> None:
        name = current_lease().name
        if name != "outer":
            self._problem = f"the outer function found the lease of {name}"

    def problem(self) -> str | None:
        if self._problem is None and current._innermost.get() is not None:
            return "the call is over, and still the current one"
        return self._problem


def test_an_interrupt_at_any_opcode_leaves_the_lease_of_the_outer_function(client: gripfast.Client) -> None:
    swept = sweep_interrupts(Nested(client), current.__file__, budget=1000)
    assert swept.broken > 50
    assert swept.findings == [], swept.explain()
