"""`min_hold` binds leases that somebody believed in, and no others."""

import asyncio
import gc

import pytest

import gripfast
from support.waiting import auntil


def test_a_claim_that_is_cancelled_before_its_answer_is_read_keeps_nothing() -> None:
    """The engine has granted it, but nobody has begun to work."""

    async def main() -> None:
        async with gripfast.connect_async("memory://kept") as client:
            before = await client.lock("job").acquire()
            await before.release()
            attempt = asyncio.ensure_future(client.lock("job", min_hold=600).acquire())
            await asyncio.sleep(0)
            assert onlooker.inspect("job") is not None  # granted
            assert not attempt.done()
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            del attempt
            gc.collect()

            async def is_settled() -> bool:
                now = await client.inspect("job")
                return now is None or now.kept is not None

            await auntil(is_settled)
            assert await client.inspect("job") is None

    with gripfast.connect("memory://kept") as onlooker:
        asyncio.run(main())


def test_permits_can_not_be_handed_over() -> None:
    with gripfast.connect("memory://") as client:
        for lease in (client.semaphore("api", 1).acquire(), client.rwlock("index").write().acquire()):
            with pytest.raises(gripfast.ConfigurationError, match="only a lock can be handed over"):
                lease.detach()
            assert lease.held


def test_a_client_that_is_closed_in_the_block_of_once_says_so() -> None:
    client = gripfast.connect("memory://")
    with pytest.raises(gripfast.ClientClosed, match="'digest' is not recorded as done"), client.once("digest", keep=60):
        client.close()


def test_a_task_does_not_write_because_its_thread_does() -> None:
    client = gripfast.connect("memory://")

    async def in_a_task() -> object:
        return client.rwlock("index").write().try_acquire()

    with client.rwlock("index").write():
        assert asyncio.run(in_a_task()) is None
    client.close()
