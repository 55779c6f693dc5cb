"""Several locks at once, where something goes wrong. What they do over each store: `gripfast.testing.conformance`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from gripfast.core.ports import unreachable
from support.both_colours import staged
from support.waiting import auntil, until

NAMES = ("a", "b", "c")


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is released only because the collector has run is not released."""
    gc.disable()
    yield
    gc.enable()


def break_release(store: Any, name: str, error: BaseException) -> None:
    release = store.release

    async def broken(hold: Any) -> Any:
        if hold.name == name:
            raise error
        return await release(hold)

    store.release = broken


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_one_lost", [False, True])
def test_an_interrupt_while_they_are_released_leaves_none_held(client: gripfast.Client, is_one_lost: bool) -> None:
    leases = client.locks(*NAMES).acquire()
    if is_one_lost:
        client.force_release("c")
    break_release(client._runtime.env.store, "b", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        leases.release()
    until(lambda: all(client.inspect(name) is None for name in NAMES))
    assert not leases.held


@pytest.mark.usefixtures("no_collector")
@staged
async def test_a_time_out_while_they_are_released_leaves_none_held() -> None:
    async with gripfast.connect_async("memory://") as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, client.locks(*NAMES) as leases:
                limit.reschedule(asyncio.get_running_loop().time())  # it strikes at the next await, in the release
        for name in NAMES:
            await auntil(lambda name=name: _is_free(client, name))
        assert not leases.held


async def _is_free(client: gripfast.AsyncClient, name: str) -> bool:
    return await client.inspect(name) is None


@staged
async def test_a_body_is_cancelled_once_however_many_are_lost() -> None:
    """They are lost one after the other: the second must not strike in what the body does at its end."""
    async with gripfast.connect_async("memory://") as client:
        store: Any = client._start().env.store
        claim, ended = store.claim, []

        async def claims_slowly(each: Any) -> Any:
            later = asyncio.get_running_loop().time() + 0.05
            await auntil(lambda: asyncio.get_running_loop().time() > later)
            return await claim(each)

        async def is_down(holds: Any, within: float) -> Any:
            return unreachable(gripfast.StoreUnavailable("down"))

        store.claim = claims_slowly
        with pytest.raises(gripfast.LeaseLost):
            async with client.locks("a", "b", ttl=0.3) as leases:
                store.renew = is_down
                try:
                    await asyncio.Event().wait()
                finally:
                    await auntil(lambda: all(lease._loss() for lease in leases._leases))
                    await asyncio.sleep(0)
                    ended.append(asyncio.current_task().cancelling())
        assert ended == [1]
        assert asyncio.current_task().cancelling() == 0


def test_on_lost_is_called_once_for_all_also_if_nobody_has_them_any_more(client: gripfast.Client) -> None:
    told: list[gripfast.Reason] = []
    for number in range(20):
        with pytest.raises(gripfast.LeaseLost):
            with client.locks(*NAMES, max_hold=0.02, on_lost=lambda leases, reason: told.append(reason)) as leases:
                leases.lost.wait()
        del leases
        until(lambda number=number: len(told) == number + 1)
    assert set(told) == {"max_hold"}


def test_what_was_lost_is_not_held_here(client: gripfast.Client) -> None:
    locks = client.locks("a", "b", max_hold=0.01)
    for _ in range(100):
        with pytest.raises(gripfast.LeaseLost), locks as leases:
            while leases.held:
                pass


def test_leases_of_which_one_is_lost_are_not_entered_and_the_others_are_released(client: gripfast.Client) -> None:
    leases = client.locks("a", "b").acquire()
    client.force_release("b")
    with pytest.raises(gripfast.LeaseLost):
        leases.extend()
    with pytest.raises(gripfast.LeaseLost):
        with leases:
            raise AssertionError("entered")
    assert client.inspect("a") is None


def test_a_block_inside_a_block_is_refused(client: gripfast.Client) -> None:
    with client.locks("a", "b") as leases:
        with pytest.raises(gripfast.ConfigurationError, match="in a `with` block already"), leases:
            raise AssertionError("entered twice")
        leases.ensure_held()


def test_a_lease_that_another_thread_has_acquired_is_waited_for(client: gripfast.Client) -> None:
    lease = client.lock("b").acquire()
    with pytest.raises(gripfast.ConfigurationError, match="has acquired 'b' before"):
        client.locks("a", "b").try_acquire()
    lease.release()
    with client.locks("a", "b") as leases:
        assert leases.held


def test_closing_while_the_last_one_is_granted_lets_nobody_in(client: gripfast.Client) -> None:
    store: Any = client._start().env.store
    claim = store.claim

    async def closes(each: Any) -> Any:
        answer = await claim(each)
        if each.name == "c":
            client.close()
        return answer

    store.claim = closes
    with pytest.raises(gripfast.ClientClosed), client.locks(*NAMES):
        raise AssertionError("entered")


def test_a_reentrant_lock_of_the_thread_is_held_in_the_loop_that_it_runs(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)

    async def main() -> bool:
        with lock:
            return True

    with lock:
        assert asyncio.run(main())
