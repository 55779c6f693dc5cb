"""A client behind a proxy that cuts its connections, another one that is not, and the questions asked afterwards.

The first client is the one whose connections are cut. The second has a way of its own to the server; it holds the lock
where a scenario needs that, and afterwards asks for it with a second of patience. Leases live for 30 s here: only a
real clean-up frees them in time. Every run has a name of its own, and a history, which is judged with the rest.
"""

import asyncio
import gc
import itertools
import math
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import gripfast
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.notes import Notes
from support.proxy import Proxy
from support.waiting import until

PATIENCE = 1.0
"""Seconds after which the lock must be free again."""
TTL = 30.0


class Colour:
    """A client that asks, and notes what it is told. Also what it drops instead of releasing it."""

    _client: Any

    def __init__(self, notes: Notes, request_timeout: float) -> None:
        self._notes = notes
        self._request_timeout = request_timeout
        self._holding: str | None = None

    def acquire(self, name: str, wait: float | None, ttl: float = TTL) -> Any:
        return self._noted(name, math.inf if wait is None else wait, ttl, lambda: self._acquire(name, wait, ttl))

    def try_acquire(self, name: str) -> Any:
        return self._noted(name, 0.0, TTL, lambda: self._acquire(name, 0.0, TTL))

    def extend(self, lease: Any) -> None:
        self._extend(lease)
        self._notes.held(lease)

    def release(self, lease: Any) -> None:
        self._holding = None
        self._notes.note("releasing", lease.name)
        try:
            self._release(lease)
        except BaseException as error:
            self._notes.error(lease.name, error)
            raise
        self._notes.note("released", lease.name)

    def dropped(self) -> None:
        """Nobody refers to a lease any more."""
        if self._holding is not None:
            self._notes.note("releasing", self._holding)
            self._notes.note("released", self._holding)
            self._holding = None

    def owners(self) -> int:
        """Those who, as far as the client knows, may still have something at the server."""
        return len(self._client._runtime.env.ledger) if self._client._runtime else 0

    @property
    def is_closed(self) -> bool:
        return bool(self._client._is_closed)

    def _noted(self, name: str, wait: float, ttl: float, ask: Callable[[], Any]) -> Any:
        self._notes.asked(name, wait, self._request_timeout, ttl=ttl, renews=True)
        try:
            lease = ask()
        except gripfast.ClientClosed:
            self._notes.note("cancelled" if self.is_closed else "failed", name)
            raise
        except BaseException as error:
            self._notes.error(name, error)
            raise
        self._notes.answered(name, lease)
        self._holding = name if lease is not None else None
        return lease

    def _acquire(self, name: str, wait: float | None, ttl: float) -> Any:
        raise NotImplementedError

    def _extend(self, lease: Any) -> None:
        raise NotImplementedError

    def _release(self, lease: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Blocking(Colour):
    def __init__(self, url: str, notes: Notes, request_timeout: float, ttl: float = TTL) -> None:
        super().__init__(notes, request_timeout)
        self._client = gripfast.connect(url, ttl=ttl)

    def _acquire(self, name: str, wait: float | None, ttl: float) -> Any:
        lock = self._client.lock(name, ttl=ttl)
        return lock.try_acquire() if wait == 0.0 else lock.acquire(wait=wait)

    def _extend(self, lease: Any) -> None:
        lease.extend()

    def _release(self, lease: Any) -> None:
        lease.release()

    def close(self) -> None:
        self._client.close()


class Asyncio(Colour):
    """On an event loop, which has a thread of its own."""

    def __init__(self, url: str, notes: Notes, request_timeout: float, ttl: float = TTL) -> None:
        super().__init__(notes, request_timeout)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()
        self._client = self._do(self._connect(url, ttl))

    async def _connect(self, url: str, ttl: float) -> gripfast.AsyncClient:
        return gripfast.connect_async(url, ttl=ttl)

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _acquire(self, name: str, wait: float | None, ttl: float) -> Any:
        async def acquire() -> Any:
            lock = self._client.lock(name, ttl=ttl)
            return await (lock.try_acquire() if wait == 0.0 else lock.acquire(wait=wait))

        return self._do(acquire())

    def _extend(self, lease: Any) -> None:
        self._do(lease.extend())

    def _release(self, lease: Any) -> None:
        self._do(lease.release())

    def cancel(self, name: str) -> None:
        """Ask, and cancel before there is an answer."""

        async def give_up() -> Any:
            async with asyncio.timeout(0.02):
                return await self._client.lock(name).try_acquire()

        with suppress(TimeoutError):
            self._noted(name, 0.0, TTL, lambda: self._do(give_up()))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._do(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


COLOURS: dict[str, Any] = {"blocking": Blocking, "asyncio": Asyncio}
_names = itertools.count(1)
"""Of runs, and of those who take part in them."""


class World:
    def __init__(self, colour: str, url: str, proxy: Proxy, url_behind: str, request_timeout: float) -> None:
        """`url_behind`: by way of the proxy."""
        self.proxy = proxy
        self._colour = colour
        self._url = url_behind
        self._request_timeout = request_timeout
        self._history: list[Event] = []
        self.second = gripfast.connect(url, ttl=TTL)
        self.first = self._new_first()
        self.name = ""
        self._over = threading.Event()
        self._helpers: list[threading.Thread] = []

    def _new_first(self) -> Colour:
        return COLOURS[self._colour](self._url, Notes("first", self._history.append), self._request_timeout)

    def new_run(self) -> None:
        self.name = f"run-{next(_names)}"
        self._history.clear()
        self._over = threading.Event()

    def warm_up(self) -> None:
        """Every connection is made and every script known, so that only the swept part's own bytes are counted."""
        self.new_run()
        lease = self.first.acquire(self.name, None)
        self.first.extend(lease)
        self.first.release(lease)
        self.taken()
        with suppress(gripfast.LockTimeout):
            self.first.acquire(self.name, 0.01)
        self.end_run()
        assert self.problem() is None

    def connect(self) -> None:
        """The connection for requests stands, whatever the run before has done to it."""
        self.first.release(self.first.acquire(self.name, 5.0))

    def start_afresh(self) -> None:
        """What one run broke must not be found again by the next; also for runs that begin with connecting."""
        self.first.close()
        self.first = self._new_first()

    # Parts of scenarios -----------------------------------------------------------------------------------------------

    def taken(self) -> None:
        """The second client has the lock until the run is over."""
        let_go = self._second_takes()
        self._help(lambda: self._over.wait() and let_go())

    def taken_until_awaited(self) -> None:
        """The second client has the lock until someone stands in line for it, or the run is over."""
        let_go = self._second_takes()

        def let_go_when_awaited() -> None:
            until(lambda: self._over.is_set() or self.waiters() > 0, within=10.0)
            let_go()

        self._help(let_go_when_awaited)

    def _second_takes(self) -> Callable[[], None]:
        """Returns how it lets go. It may still be at that when it is asked to take the lock once more."""
        notes, name = Notes(f"second {next(_names)}", self._history.append), self.name
        notes.asked(name, PATIENCE, PATIENCE, ttl=TTL, renews=True)
        try:
            lease = self.second.lock(name).acquire(wait=PATIENCE)
        except BaseException as error:
            notes.error(name, error)
            raise
        notes.answered(name, lease)

        def let_go() -> None:
            notes.note("releasing", name)
            lease.release()
            notes.note("released", name)

        return let_go

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
        self.first.dropped()
        gc.collect(0)
        return self._not_free() or self._not_drained() or self._not_right()

    def _not_right(self) -> str | None:
        found = violations(self._history, may_be_unreachable=True)
        return "; ".join(map(str, found)) or None

    def _not_free(self) -> str | None:
        try:
            self._second_takes()()
        except gripfast.LockTimeout as error:
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
