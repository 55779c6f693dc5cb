"""A client behind a proxy that cuts its connections, another one that is not, and the questions asked afterwards.

The first client is the one whose connections are cut. The second has a way of its own to the server; it holds the lock
where a scenario needs that, and afterwards asks for it with a second of patience. Leases live for 30 s here: only a
real clean-up frees them in time. Every run has a name of its own.
"""

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import holdfast
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import until

PATIENCE = 1.0
"""Seconds after which the lock must be free again."""
TTL = 30.0


class Blocking:
    """The first client, in the blocking colour."""

    def __init__(self, url: str) -> None:
        self._client = holdfast.connect(url, ttl=TTL)

    def acquire(self, name: str, wait: float | None, ttl: float = TTL) -> Any:
        return self._client.lock(name, ttl=ttl).acquire(wait=wait)

    def try_acquire(self, name: str) -> Any:
        return self._client.lock(name).try_acquire()

    def extend(self, lease: Any) -> None:
        lease.extend()

    def release(self, lease: Any) -> None:
        lease.release()

    def owners(self) -> int:
        """Those who, as far as the client knows, may still have something at the server."""
        return len(self._client._runtime.env.ledger) if self._client._runtime else 0

    @property
    def is_closed(self) -> bool:
        return self._client._is_closed

    def close(self) -> None:
        self._client.close()


class Asyncio:
    """The same on an event loop, which has a thread of its own."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()
        self._client = self._do(self._connect(url))

    async def _connect(self, url: str) -> holdfast.AsyncClient:
        return holdfast.connect_async(url, ttl=TTL)

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def acquire(self, name: str, wait: float | None, ttl: float = TTL) -> Any:
        async def acquire() -> Any:
            return await self._client.lock(name, ttl=ttl).acquire(wait=wait)

        return self._do(acquire())

    def try_acquire(self, name: str) -> Any:
        return self._do(self._client.lock(name).try_acquire())

    def extend(self, lease: Any) -> None:
        self._do(lease.extend())

    def release(self, lease: Any) -> None:
        self._do(lease.release())

    def owners(self) -> int:
        return len(self._client._runtime.env.ledger) if self._client._runtime else 0

    def cancel(self, name: str) -> None:
        """Ask, and cancel before there is an answer."""

        async def give_up() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._client.lock(name).try_acquire()

        self._do(give_up())

    @property
    def is_closed(self) -> bool:
        return self._client._is_closed

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._do(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


COLOURS = {"blocking": Blocking, "asyncio": Asyncio}
_names = itertools.count(1)


class World:
    def __init__(self, colour: str, server: RedisServer, proxy: Proxy, request_timeout: float) -> None:
        self.proxy = proxy
        self._colour = colour
        self._url = f"redis://{proxy.host}:{proxy.port}/0?request_timeout={request_timeout}"
        self.second = holdfast.connect(server.url, ttl=TTL)
        self.first = COLOURS[colour](self._url)
        self.name = ""
        self._over = threading.Event()
        self._helpers: list[threading.Thread] = []

    def new_run(self) -> None:
        self.name = f"run-{next(_names)}"
        self._over = threading.Event()

    def warm_up(self) -> None:
        """Every connection is made and every script known, so that only the swept part's own bytes are counted."""
        self.new_run()
        lease = self.first.acquire(self.name, None)
        self.first.extend(lease)
        self.first.release(lease)
        self.taken()
        with suppress(holdfast.LockTimeout):
            self.first.acquire(self.name, 0.01)
        self.end_run()
        assert self.problem() is None

    def connect(self) -> None:
        """The connection for requests stands, whatever the run before has done to it."""
        self.first.release(self.first.acquire(self.name, 5.0))

    def start_afresh(self) -> None:
        """What one run broke must not be found again by the next; also for runs that begin with connecting."""
        self.first.close()
        self.first = COLOURS[self._colour](self._url)

    # Parts of scenarios -----------------------------------------------------------------------------------------------

    def taken(self) -> None:
        """The second client has the lock until the run is over."""
        lease = self.second.lock(self.name).acquire(wait=PATIENCE)
        self._help(lambda: self._over.wait() and lease.release())

    def taken_until_awaited(self) -> None:
        """The second client has the lock until someone stands in line for it, or the run is over."""
        lease = self.second.lock(self.name).acquire(wait=PATIENCE)

        def let_go() -> None:
            until(lambda: self._over.is_set() or self.waiters() > 0, within=10.0)
            lease.release()

        self._help(let_go)

    def waiters(self) -> int:
        info = self.second.inspect(self.name)
        return info.waiters if info else 0

    def _help(self, action: Callable[[], object]) -> None:
        self._helpers.append(threading.Thread(target=action))
        self._helpers[-1].start()

    def end_run(self) -> None:
        self._over.set()
        while self._helpers:
            self._helpers.pop().join()

    # Questions --------------------------------------------------------------------------------------------------------

    def untrue(self, lease: Any) -> str | None:
        """What is wrong with this lease's claim to hold the lock."""
        info = self.second.inspect(self.name)
        if not lease.held:
            return f"a lease that is not held: {lease!r}"
        if info is None or (info.owner, info.token) != (lease.owner, lease.token):
            return f"{lease!r}, but the server says {info}"
        return None

    def problem(self) -> str | None:
        """Once nobody has a lease any more."""
        gc.collect(0)
        return self._not_free() or self._not_drained()

    def _not_free(self) -> str | None:
        try:
            self.second.lock(self.name).acquire(wait=PATIENCE).release()
        except holdfast.LockTimeout as error:
            self.second.force_release(self.name)
            return f"not free within {PATIENCE:g} s: {error}"
        try:
            until(lambda: self.second.inspect(self.name) is None, within=PATIENCE)
        except AssertionError:
            return f"someone still has it: {self.second.inspect(self.name)}"
        return None

    def _not_drained(self) -> str | None:
        try:
            until(lambda: self.first.owners() == 0, within=PATIENCE)
        except AssertionError:
            return f"the ledger still has {self.first.owners()} entries"
        return None

    def close(self) -> None:
        self.end_run()
        self.first.close()
        self.second.close()
