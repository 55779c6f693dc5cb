"""Gripfast's side of an uncontended pair, on any store: taking a free lock and giving it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gripfast
from bench.scenario import Contestant, Place, Sample
from bench.timing import per_awaited, per_operation

Address = Callable[[Place], str]
"""The URL to connect to, given the place."""

Times = tuple[int, int]
"""How many pairs a full and a quick round have."""

BY_CALLS = "gripfast acquire+release"
BY_WITH = "gripfast with lock"
BY_ASYNC_WITH = "gripfast async with lock"


def by_calls(name: str, address: Address, times: Times, needs: tuple[str, ...] = ()) -> Contestant:
    """acquire() and release()."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with gripfast.connect(address(place)) as client:
            lock = client.lock("bench")
            yield lambda: per_operation(lambda: lock.acquire().release(), place.size(*times))

    return Contestant(name, opened, needs)


def by_with(name: str, address: Address, times: Times, needs: tuple[str, ...] = ()) -> Contestant:
    """`with lock`."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with gripfast.connect(address(place)) as client:
            lock = client.lock("bench")

            def pair() -> None:
                with lock:
                    pass

            yield lambda: per_operation(pair, place.size(*times))

    return Contestant(name, opened, needs)


def by_async_with(name: str, address: Address, times: Times, needs: tuple[str, ...] = ()) -> Contestant:
    """`async with lock`, on one event loop for all rounds."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with asyncio.Runner() as runner:
            client = gripfast.connect_async(address(place))
            lock = client.lock("bench")

            async def pair() -> None:
                async with lock:
                    pass

            yield lambda: per_awaited(runner, pair, place.size(*times))
            runner.run(client.aclose())

    return Contestant(name, opened, needs)
