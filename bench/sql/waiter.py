"""A process that waits for a lock whenever it is told to, and tells when it was let in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection

import gripfast
from bench.crew import GOODBYE, PATIENCE, SPAWN

SETTLED = 0.05
"""Seconds after which who was told to ask surely waits."""

Leave = Callable[[], object]
Waits = Callable[[str, str], AbstractContextManager[Callable[[], Leave]]]
"""For a URL and a name: a function that waits for the lock, and gives what leaves it again. It is sent to a process."""


@contextmanager
def in_a_thread(url: str, name: str) -> Iterator[Callable[[], Leave]]:
    with gripfast.connect(url) as client:
        lock = client.lock(name)
        yield lambda: lock.acquire().release


@contextmanager
def on_a_loop(url: str, name: str) -> Iterator[Callable[[], Leave]]:
    with asyncio.Runner() as runner:
        client = gripfast.connect_async(url)
        lock = client.lock(name)

        async def acquired() -> gripfast.AsyncLease:
            return await lock.acquire()

        def enter() -> Leave:
            lease = runner.run(acquired())
            return lambda: runner.run(lease.release())

        yield enter
        runner.run(client.aclose())


class Waiter:
    """The other end of its pipe."""

    def __init__(self, told: Connection) -> None:
        self._told = told

    def ask(self) -> None:
        self._told.send("ask")
        time.sleep(SETTLED)

    def entered(self) -> float:
        """When it was let in, by the clock that processes share; it has left again."""
        if not self._told.poll(PATIENCE):
            raise TimeoutError("the process that waits does not answer")
        at = self._told.recv()
        if isinstance(at, str):
            raise RuntimeError(at)
        return float(at)


@contextmanager
def waiter(waits: Waits, url: str, name: str) -> Iterator[Waiter]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_main, args=(there, waits, url, name), daemon=True)
    process.start()
    there.close()
    try:
        told = Waiter(here)
        # Once it has been let in, it is connected, and whatever is done once only has been done.
        told.ask()
        told.entered()
        yield told
    finally:
        here.close()
        process.join(GOODBYE)
        if process.is_alive():
            process.kill()
            process.join()


def _main(told: Connection, waits: Waits, url: str, name: str) -> None:
    """What the process does, until the other end of its pipe is closed."""
    try:
        with waits(url, name) as enter:
            while _is_told(told):
                leave = enter()
                at = time.monotonic()
                leave()
                told.send(at)
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        told.send(f"{type(error).__name__}: {error}")
        _is_told(told)


def _is_told(told: Connection) -> bool:
    try:
        return bool(told.recv())
    except (EOFError, ConnectionResetError):
        return False
