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
