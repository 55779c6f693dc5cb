"""The world around the code under test: a store in memory, others who hold locks, outages, losses, a clock.

    with World() as world:
        with world.hold("report"):
            assert run_report() == "busy"

As long as the block runs, `gripfast.lock()`, `gripfast.connect()` and whoever reads $GRIPFAST_URL use this store, and
no other. At its end nothing may be held any more: `check()`.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import gripfast
from gripfast.api import default
from gripfast.api.lease import Handle
from gripfast.api.lock import Settled
from gripfast.api.locks import AnyLocks
from gripfast.api.once import AnyOnce
from gripfast.api.permits import AnyRWLock
from gripfast.core import rules
from gripfast.core.lease import Broken, LeaseState
from gripfast.core.ports import Hold, Taken
from gripfast.errors import ConfigurationError, LockTimeout, Reason
from gripfast.machine import boottime
from gripfast.runtime.parts import EXIT_PATIENCE
from gripfast.stores.memory.factory import replaced
from gripfast.testing import leaks, outsiders
from gripfast.testing.clock import Clock, Runtime, runtimes, settle_threads
from gripfast.testing.moments import moments
from gripfast.testing.store import Stranger, WithoutPrefix, WorldFactory, WorldStore

if TYPE_CHECKING:
    from gripfast.api.config import Config
    from gripfast.core.ledger import Mark
    from gripfast.runtime.aio import AioRuntime
    from gripfast.stores import StoreFactory

LOSSES: tuple[Reason, ...] = ("expired", "taken", "broken", "session", "max_hold")

_numbers = itertools.count(1)


class Held:
    """A lock that somebody else holds, as far as the code under test can see: `world.hold(name)`. A context manager:
    the end of the block releases it."""

    _hold: Hold

    def __init__(self, world: World, name: str, token: int) -> None:
        self.name = name
        self.token = token
        self._world = world
        self._cancel: Callable[[], None] = lambda: None

    def release(self) -> None:
        """The other one releases it. A second call does nothing."""
        self._cancel()
        self._world._let_go(self)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} token={self.token}>"


class World:
    """A store in memory for one test, and what happens to it. A context manager.

    - `url`: for code that connects by itself.
    - `client`: for threads. `gripfast.lock()` and `gripfast.async_lock()` share its locks.
    - `clock`: see `Clock`.
    """

    def __init__(self) -> None:
        name = f"gripfast-world-{next(_numbers)}"
        self._factory = WorldFactory(name)
        self._factory.tend = self._tend
        self._engine = self._factory.engine
        self._holds: list[Held] = []
        self._may_stay: set[str] = set()
        self._exits = ExitStack()
        self._dropped: list[leaks.Dropped] = []
        self.url: str = self._factory.where
        self.clock: Clock = Clock()
        replaced[name] = self._factory
        self.client: gripfast.Client = gripfast.connect(self.url)
        self._async_client: gripfast.AsyncClient | None = None

    @property
    def async_client(self) -> gripfast.AsyncClient:
        """For tasks. It belongs to the event loop in which it is first used."""
        if self._async_client is None:
            self._async_client = gripfast.connect_async(self.url)
        return self._async_client

    # -- what others do ------------------------------------------------------------------------------------------

    def hold(
        self,
        name: str,
        *,
        label: str | None = None,
        host: str = "elsewhere",
        pid: int = 4711,
        seconds: float | None = None,
    ) -> Held:
        """Somebody else holds this lock, until `release()`, the end of the `with` block, or for so many `seconds` of
        the clock. `label`, `host` and `pid` are what the code under test sees of the holder."""
        held = self._claim(rules.checked_name(name), Stranger(host, rules.checked_label(label), pid))
        self._holds.append(held)
        if seconds is not None:
            held._cancel = moments.add_timer(boottime() + seconds, held.release)
        return held

    @contextmanager
    def outage(self, seconds: float | None = None) -> Iterator[None]:
        """While the block runs, or for so many `seconds` of the clock, the store refuses every connection. Acquiring
        raises StoreUnavailable when the caller's patience is over; leases are not renewed, and expire."""
        mine = object()
        self._factory.outages.append(mine)
        ends = math.inf if seconds is None else boottime() + seconds
        cancel = moments.add_timer(ends, lambda: self._end(mine))
        try:
            yield
        finally:
            cancel()
            self._end(mine)

    def lose(
        self,
        lease: gripfast.Lease | gripfast.AsyncLease | str,
        reason: Reason = "expired",
        *,
        note: str | None = None,
    ) -> None:
        """Lose the lease, or the lease on this name, at once. `on_lost` has returned when this returns.

        In an event loop, the body of `async with` is cancelled at its next `await` that has to wait (`asyncio.sleep(0)`
        counts), and `on_lost` is called as soon as the loop goes on.

        `reason`: `"expired"`, `"taken"` (somebody else holds the lock from now on), `"broken"` (with the operator's
        `note`), `"session"` or `"max_hold"`.
        """
        if reason not in LOSSES or (note is not None and reason != "broken"):
            raise ConfigurationError(
                f"reason must be one of {', '.join(LOSSES)}, and only 'broken' takes a note; not reason={reason!r}, "
                f"note={note!r}. What an operator writes as force_release(name, reason=…) is note=… here"
            )
        found = [(runtime, state) for runtime, state in self._leases() if _is_of(state, lease)]
        if not found:
            what = f"there is no lease to lose: the code under test holds {', '.join(map(repr, self.held())) or 'none'}"
            raise ConfigurationError(f"{what}, not {getattr(lease, 'name', lease)!r}")
        for runtime, state in found:
            self._end_at_engine(state, _key(runtime, state), reason, note)
            state.finish(reason if note is None else Broken(note))
            _tell_loss(runtime, state)
        settle_threads()

    # -- what the test looks at ----------------------------------------------------------------------------------

    def held(self) -> list[str]:
        """The names that the code under test holds now, ascending. Those of `hold()` are not among them."""
        return sorted({state.name for _, state in self._leases()})

    def may_stay_held(self, *names: str) -> None:
        """The test may end while these are held, or after such a lease was dropped."""
        self._may_stay.update(names)

    def check(self) -> None:
        """Raise an AssertionError if something is still held, or was dropped without a release."""
        settle_threads()
        held = [leaks.told_of_held(mark) for mark in self._marks() if mark.name not in self._may_stay]
        dropped = [lease.text for lease in self._dropped if lease.name not in self._may_stay]
        if held or dropped:
            raise AssertionError("\n".join([leaks.HEADING, *held, *dropped]))

    # -- which clients are in it ---------------------------------------------------------------------------------

    def redirect(
        self,
        client: gripfast.Client
        | gripfast.AsyncClient
        | gripfast.Lock
        | gripfast.AsyncLock
        | gripfast.Semaphore
        | gripfast.AsyncSemaphore
        | gripfast.RWLock
        | gripfast.AsyncRWLock
        | gripfast.Locks
        | gripfast.AsyncLocks
        | gripfast.Election
        | gripfast.AsyncElection
        | gripfast.Once
        | gripfast.AsyncOnce,
    ) -> None:
        """Until the end of this world, a client that the program has made before, such as one of a module, is in this
        world, with everything that it has made and decorated. Its ttl stays, and so does a prefix that the program
        chose: `hold()` takes the name with that prefix.

        Instead of a client, pass a lock (or `locks()`, a semaphore, a read/write lock, an election, a `once()`) that a
        module has made: its client is moved, with everything else that this client has made. So it works for
        `lock = gripfast.lock("job")`, too."""
        if isinstance(client, Settled | AnyLocks | AnyRWLock | AnyOnce):
            client = client._client
        if not isinstance(client, gripfast.Client | gripfast.AsyncClient):
            raise ConfigurationError(
                f"redirect() takes a client, or a lock that a module made at import, not a "
                f"{type(client).__name__}: pass the client that made it, or make it in the function that uses it"
            )
        if _world_of(client._config.factory) is not self._factory:
            self._move(client)

    def _move(self, client: gripfast.Client | gripfast.AsyncClient) -> None:
        before = dict(vars(client))
        vars(client).pop(outsiders.WAY_IN, None)
        client.__init__(self._config_here(before["_config"]))  # type: ignore[misc]
        self._exits.callback(vars(client).update, before)
        self._exits.callback(_close, client)

    def _config_here(self, config: Config) -> Config:
        """A prefix that its store has by default, such as Redis's `lock:`, is not part of the names in a world. The
        client keeps it, because the locks that it made before have it."""
        if config.prefix and config.prefix == config.factory.prefix:
            return config._replace(factory=WithoutPrefix(self._factory, config.prefix))
        return config._replace(factory=self._factory)

    def __enter__(self) -> World:
        self._exits.enter_context(leaks.collected(self._dropped))
        self._exits.callback(self._close)
        former = default.client_so_far()
        self._exits.enter_context(_as_default(self.url))
        self._exits.enter_context(outsiders.watched(former))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """What a failed test has left held says nothing new."""
        with self._exits:
            if kind is None:
                self.check()

    def _close(self) -> None:
        self._factory.outages.clear()
        _close(self.client)
        if self._async_client is not None:
            _close(self._async_client)
        for held in list(self._holds):
            held.release()

    # -- the engine ----------------------------------------------------------------------------------------------

    def _claim(self, name: str, stranger: Stranger) -> Held:
        self._tend()
        hold = Hold(name, os.urandom(16).hex(), rules.TTL_DEFAULT)
        answer = self._engine.claim_for(hold, stranger)
        if isinstance(answer, Taken):
            raise LockTimeout(name, 0.0, answer.holder)
        held = Held(self, name, answer.token)
        held._hold = hold
        return held

    def _let_go(self, held: Held) -> None:
        if held in self._holds:
            self._tend()
            self._holds.remove(held)
            self._engine.release(held._hold)

    def _tend(self) -> None:
        """The others renew theirs."""
        for held in list(self._holds):
            self._engine.keep(held._hold)

    def _end(self, outage: object) -> None:
        if outage in self._factory.outages:
            self._factory.outages.remove(outage)

    def _end_at_engine(self, state: LeaseState, key: str, reason: Reason, note: str | None) -> None:
        self._tend()
        share = state.want.share
        if share is not None:
            self._engine.permits().force_release(key, share.kind, state.owner, None, note)
            return
        self._engine.force_release(key, note)
        if reason == "taken" and self._engine.inspect(key) is None:
            self.hold(key)

    def _marks(self) -> list[Mark]:
        """Of leases that are held."""
        owners = {state.owner for _, state in self._leases()}
        marks = [mark for runtime in self._runtimes() for mark in runtime.env.ledger.marks()]
        return [mark for mark in marks if mark.owner in owners]

    def _leases(self) -> list[tuple[Runtime, LeaseState]]:
        now = boottime()
        leases = [(runtime, state) for runtime in self._runtimes() for state in runtime.env.ledger.leases()]
        return [(runtime, state) for runtime, state in leases if state.remaining(now) > 0.0]

    def _runtimes(self) -> list[Runtime]:
        return [runtime for runtime in runtimes() if _factory_of(runtime) is self._factory]


def _factory_of(runtime: Runtime) -> WorldFactory | None:
    store = runtime.env.store
    return store.factory if isinstance(store, WorldStore) else None


def _world_of(factory: StoreFactory) -> StoreFactory:
    return factory.world if isinstance(factory, WithoutPrefix) else factory


def _key(runtime: Runtime, state: LeaseState) -> str:
    """In the engine of the world."""
    store = runtime.env.store
    assert isinstance(store, WorldStore)
    return store.name_here(state.key)


def _is_of(state: LeaseState, lease: object) -> bool:
    return state is lease._state if isinstance(lease, Handle) else state.name == lease


def _tell_loss(runtime: Runtime, state: LeaseState) -> None:
    """What belongs to a loop is told on its thread, before any task goes on there. Not at once: a real loss cancels a
    task only while it waits. A task that cancelled itself would carry that to an `await` behind the block."""
    loop = getattr(runtime, "loop", None)
    if loop is None:
        runtime.env.announce(state)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_tell_in_loop, runtime, state)


def _tell_in_loop(runtime: AioRuntime, state: LeaseState) -> None:
    runtime.env.announce(state)
    runtime.look_now()


def _close(client: gripfast.Client | gripfast.AsyncClient) -> None:
    """In or outside of its loop."""
    if isinstance(client, gripfast.Client):
        client.close()
    else:
        client._close_soon()
        client._await_end(EXIT_PATIENCE)


@contextmanager
def _as_default(url: str) -> Iterator[None]:
    """For `gripfast.lock()`, and for whoever connects without a URL."""
    before, url_before = list(default._current), os.environ.get("GRIPFAST_URL")
    gripfast.configure(url)
    os.environ["GRIPFAST_URL"] = url
    try:
        yield
    finally:
        default.default_client().close()
        default._current[:] = before
        if url_before is None:
            del os.environ["GRIPFAST_URL"]
        else:
            os.environ["GRIPFAST_URL"] = url_before
