"""Blocks that were entered without the lock, or left it too early."""

from __future__ import annotations

import asyncio
import gc

import pytest

import gripfast
from support.waiting import until

# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_lock_asked_for_its_exit_and_entered_by_hand_is_held_until_left(url: str) -> None:
    with gripfast.connect(url) as client:
        lock = client.lock("job")
        assert hasattr(lock, "__exit__")
        lock.__enter__()
        gc.collect()
        assert client.inspect("job") is not None
        lock.__exit__(None, None, None)
        assert client.inspect("job") is None


def test_an_async_lock_asked_for_its_exit_and_entered_by_hand_is_held_until_left(url: str) -> None:
    async def main() -> None:
        async with gripfast.connect_async(url) as client:
            lock = client.lock("job")
            assert hasattr(lock, "__aexit__")
            await lock.__aenter__()
            gc.collect()
            assert await client.inspect("job") is not None
            await lock.__aexit__(None, None, None)
            assert await client.inspect("job") is None

    asyncio.run(main())


# -- a lease that is over ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["released", "expired"])
def test_a_lease_that_is_over_is_not_entered(url: str, ending: str) -> None:
    entered = []
    with gripfast.connect(url) as client:
        lease = client.lock("job", ttl=0.05, renew=False).acquire()
        if ending == "released":
            lease.release()
        until(lambda: not lease.held)
        with pytest.raises(gripfast.LeaseLost) as caught, lease:
            entered.append(lease.held)
        assert caught.value.reason == ending
    assert entered == []


@pytest.mark.parametrize("ending", ["released", "expired"])
def test_an_async_lease_that_is_over_is_not_entered_and_cancels_nothing(url: str, ending: str) -> None:
    async def main() -> None:
        entered = []
        async with gripfast.connect_async(url) as client:
            lease = await client.lock("job", ttl=0.05, renew=False).acquire()
            if ending == "released":
                await lease.release()
            until(lambda: not lease.held)  # the loop stands still: nobody was told yet
            with pytest.raises(gripfast.LeaseLost) as caught:
                async with lease:
                    entered.append(lease.held)
            assert caught.value.reason == ending
            await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
        assert entered == []

    asyncio.run(main())
