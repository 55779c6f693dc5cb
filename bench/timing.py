"""Measuring one round: how long one of many equal operations took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from bench.scenario import Sample

MICROSECONDS = "µs"
PAIRS_PER_SECOND = "pairs/s"


def per_operation(operation: Callable[[], object], times: int) -> Sample:
    started = time.perf_counter()
    for _ in range(times):
        operation()
    return {MICROSECONDS: (time.perf_counter() - started) / times * 1e6}


def per_awaited(runner: asyncio.Runner, operation: Callable[[], Awaitable[object]], times: int) -> Sample:
    """The same on an event loop; starting and leaving the loop is not counted."""

    async def measure() -> Sample:
        started = time.perf_counter()
        for _ in range(times):
            await operation()
        return {MICROSECONDS: (time.perf_counter() - started) / times * 1e6}

    return runner.run(measure())


def together(runner: asyncio.Runner, operations: Sequence[Callable[[], Awaitable[object]]], times: int) -> Sample:
    """Each operation as often in a task of its own: how many of all there are in a second."""

    async def repeat(operation: Callable[[], Awaitable[object]]) -> None:
        for _ in range(times):
            await operation()

    async def measure() -> Sample:
        started = time.perf_counter()
        await asyncio.gather(*map(repeat, operations))
        return {PAIRS_PER_SECOND: len(operations) * times / (time.perf_counter() - started)}

    return runner.run(measure())
