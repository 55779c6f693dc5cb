"""The asyncio runtime's own timing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import gripfast
from gripfast.machine import boottime
from support.waiting import auntil


def test_a_lease_granted_during_a_round_of_the_watchdog_is_renewed_in_time() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            first = await client.lock("first", ttl=1.5).acquire()
            renew = client._store().renew
            late: list[gripfast.AsyncLease] = []

            async def renew_and_meanwhile_acquire(holds: Sequence[Any], *args: Any) -> Any:
                if not late:
                    late.append(await client.lock("late", ttl=0.3).acquire())
                return await renew(holds, *args)

            client._store().renew = renew_and_meanwhile_acquire  # type: ignore[method-assign, assignment]
            await auntil(lambda: late)
            granted = boottime()
            await auntil(lambda: boottime() > granted + 0.4)  # before the first one is due again
            assert late[0].held
            await late[0].release()
            await first.release()

    asyncio.run(main())
