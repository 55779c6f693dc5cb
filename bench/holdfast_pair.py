"""Holdfast's side of an uncontended pair, on any store: taking a free lock and giving it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from bench.scenario import Contestant, Sample
from bench.timing import per_awaited, per_operation

Address = Callable[[Path], str]
"""The URL to connect to, given a folder."""


def by_calls(name: str, address: Address, times: int) -> Contestant:
    """acquire() and release()."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Callable[[], Sample]]:
        with holdfast.connect(address(folder)) as client:
            lock = client.lock("bench")
            yield lambda: per_operation(lambda: lock.acquire().release(), times)

    return Contestant(name, opened)


def by_with(name: str, address: Address, times: int) -> Contestant:
    """`with lock`."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Callable[[], Sample]]:
        with holdfast.connect(address(folder)) as client:
            lock = client.lock("bench")

            def pair() -> None:
                with lock:
                    pass

            yield lambda: per_operation(pair, times)

    return Contestant(name, opened)


def by_async_with(name: str, address: Address, times: int) -> Contestant:
    """`async with lock`, on one event loop for all rounds."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Callable[[], Sample]]:
        with asyncio.Runner() as runner:
            client = holdfast.connect_async(address(folder))
            lock = client.lock("bench")

            async def pair() -> None:
                async with lock:
                    pass

            yield lambda: per_awaited(runner, pair, times)
            runner.run(client.aclose())

    return Contestant(name, opened)
