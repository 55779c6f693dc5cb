"""The AsyncClients that a plain client has for its coroutine functions, one per event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import api
from gripfast.api.loops import ClientPerLoop
from gripfast.machine import boottime
from support.switching import at_every_opcode
from support.waiting import auntil, until

LONGER_THAN_TO_CLOSE = 4.0
"""Seconds; a client takes 2 at most."""


@pytest.fixture
def other(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as other:
        yield other


def threads() -> set[threading.Thread]:
    """Gripfast's own, by their names; kazoo's end with its sessions."""
    return {each for each in threading.enumerate() if each.name.startswith("gripfast")}


def job_of(
    client: gripfast.Client, body: Callable[[], Coroutine[Any, Any, None]]
) -> Callable[[], Coroutine[Any, Any, None]]:
    return client.locked("job", ttl=600)(body)


def test_closing_a_client_in_a_locked_coroutine_gives_its_lock_back(url: str, other: gripfast.Client) -> None:
    other.inspect("job")
    client, before = gripfast.connect(url), threads()

    async def body() -> None:
        started = boottime()
        client.close()
        assert boottime() - started < LONGER_THAN_TO_CLOSE
        await auntil(lambda: other.inspect("job") is None)
        with pytest.raises(gripfast.ClientClosed):
            await job_of(client, body)()

    asyncio.run(job_of(client, body)())
    until(lambda: threads() <= before)


def test_closing_a_client_gives_back_what_is_locked_in_a_loop_on_another_thread(
    url: str, other: gripfast.Client
) -> None:
    other.inspect("job")
    client, before = gripfast.connect(url), threads()
    began, may_end = threading.Event(), threading.Event()

    async def body() -> None:
        began.set()
        await auntil(may_end.is_set, within=30)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, job_of(client, body)())
        assert began.wait(10)
        client.close()
        until(lambda: other.inspect("job") is None)
        until(lambda: threads() <= before)
        may_end.set()
        running.result()


def test_closing_a_client_ends_what_a_closed_loop_has_left(url: str, other: gripfast.Client) -> None:
    other.inspect("job")
    client, before, leases = gripfast.connect(url), threads(), []

    async def body() -> None:
        leases.append(await client._twin_lock("job", ttl=600).acquire())

    asyncio.run(body())
    asyncio.run(client.locked("another", ttl=600)(_nothing)())  # lets go of the client of the closed loop
    client.close()
    until(lambda: other.inspect("job") is None)
    until(lambda: threads() <= before)
    assert not leases[0].held


async def _nothing() -> None: ...


def test_threads_with_a_loop_each_find_their_own_client_wherever_they_are_switched() -> None:
    """The clients of closed loops are let go by whoever comes first."""
    scenes: list[ClientPerLoop] = []
    closed: list[asyncio.AbstractEventLoop] = []

    async def find() -> bool:
        return scenes[-1].here() is scenes[-1].here()

    async def remember_this_loop() -> None:
        closed.append(asyncio.get_running_loop())
        scenes[-1].here()

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        scenes.append(ClientPerLoop(lambda: gripfast.connect_async("memory://per-loop")))
        asyncio.run(remember_this_loop())
        return lambda: asyncio.run(find()), lambda: on_another_thread(lambda: asyncio.run(find()))

    for where in at_every_opcode(Path(api.__file__).parent, begin):
        assert closed[-1] not in scenes[-1]._clients, where


def on_another_thread(action: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(action).result()
