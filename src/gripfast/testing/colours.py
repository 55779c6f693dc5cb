"""One test body, two colours.

Test bodies are `async def` and speak to *actors*. A blocking actor has a thread of its own, an asyncio actor a task of
its own, so that re-entry sees who asks and actors that wait do not hold each other up. Whatever an actor is told to do
starts at once, in the order told; the answer is a future, awaited when the test cares.

    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await alice.release(lease)
    assert (await waiting).token > lease.token

Gripfast's two APIs differ in `await` only, so all but four small methods of an actor are written once.
"""

import asyncio
import inspect
import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ClassVar

import gripfast
from gripfast.testing.waiters import waiters_among, watch_for_waiters
from gripfast.testing.waiting import auntil

PATIENCE = 10.0  # how long an actor waits for a lock unless the test says otherwise
ACTOR = "actor-"  # how the threads and tasks of actors are called

Work = Callable[[], Any]
Body = Callable[[Any], Awaitable[Any]]

_numbers = itertools.count(1)


def _as_it_is(answer: Any) -> Any:
    return answer


class Actor(ABC):
    """Someone who locks: a client (maybe shared with other actors) and a thread or task of its own."""

    colour: ClassVar[str]

    def __init__(self, client: Any) -> None:
        self.client = client
        self.name = f"{ACTOR}{next(_numbers)}"
        self._kept: list[Any] = []  # a lease that nobody keeps would be released

    @staticmethod
    @abstractmethod
    def connect(target: str | None, **options: Any) -> Any:
        """A client of this colour."""

    @staticmethod
    @abstractmethod
    async def disconnect(client: Any) -> None:
        """Close a client of this colour."""

    @staticmethod
    @abstractmethod
    def function(plain: Callable[..., Any]) -> Callable[..., Any]:
        """A plain function as this colour writes it."""

    @abstractmethod
    def does(self, work: Work, then: Callable[[Any], Any] = _as_it_is) -> "asyncio.Future[Any]":
        """Start some work of this colour on the actor's own thread or task; `then` turns its result into the answer."""

    @abstractmethod
    def enters(self, context: Work, body: Body) -> "asyncio.Future[Any]":
        """Run the body inside a real `with` or `async with` statement."""

    @abstractmethod
    def listing(self, prefix: str = "", **kind: Any) -> "asyncio.Future[list[Any]]":
        """All that client.list() iterates over."""

    @abstractmethod
    async def leaves(self) -> None:
        """End the actor's thread or task."""

    def lock(self, lock: Any, **settings: Any) -> Any:
        return self.client.lock(lock, **settings) if isinstance(lock, str) else lock

    def acquire(self, lock: Any, wait: Any = PATIENCE, **settings: Any) -> "asyncio.Future[Any]":
        return self.does(lambda: self.lock(lock, **settings).acquire(wait=wait), then=self._keep)

    def try_acquire(self, lock: Any, **settings: Any) -> "asyncio.Future[Any]":
        return self.does(lambda: self.lock(lock, **settings).try_acquire(), then=self._keep)

    def _keep(self, lease: Any) -> Any:
        self._kept.append(lease)
        return lease

    def drops(self, lock: Any, **settings: Any) -> "asyncio.Future[int]":
        """Acquire and forget the lease; the answer is its token."""
        return self.does(
            lambda: self.lock(lock, **settings).acquire(wait=PATIENCE), then=lambda lease: int(lease.token)
        )

    def inside(self, lock: Any, body: Body, **settings: Any) -> "asyncio.Future[Any]":
        """`with lock as lease:` and the body."""
        return self.enters(lambda: self.lock(lock, **settings), body)

    def inside_acquired(self, lock: Any, body: Body, wait: Any = PATIENCE, **settings: Any) -> "asyncio.Future[Any]":
        """`with lock.acquire(wait=...) as lease:` and the body."""
        return self.enters(lambda: self.lock(lock, **settings).acquire(wait=wait), body)

    def release(self, lease: Any) -> "asyncio.Future[None]":
        return self.does(lambda: lease.release())

    def extend(self, lease: Any, *ttl: Any) -> "asyncio.Future[Any]":
        return self.does(lambda: lease.extend(*ttl))

    def hears_of_loss(self, lease: Any, patience: float | None = PATIENCE) -> "asyncio.Future[bool]":
        return self.does(lambda: lease.lost.wait(patience))

    def inspect(self, name: Any, **kind: Any) -> "asyncio.Future[Any]":
        return self.does(lambda: self.client.inspect(name, **kind))

    def force_release(self, name: Any, reason: Any = None, **whom: Any) -> "asyncio.Future[bool]":
        return self.does(lambda: self.client.force_release(name, reason, **whom))

    def calls(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        return self.does(lambda: function(*args, **kwargs))


class BlockingActor(Actor):
    colour = "blocking"
    connect = staticmethod(gripfast.connect)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self.name)

    @staticmethod
    async def disconnect(client: Any) -> None:
        await asyncio.to_thread(client.close)

    @staticmethod
    def function(plain: Callable[..., Any]) -> Callable[..., Any]:
        return plain

    def does(self, work: Work, then: Callable[[Any], Any] = _as_it_is) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._thread, lambda: then(work()))

    def enters(self, context: Work, body: Body) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()

        async def play(lease: Any) -> Any:
            return await body(lease)

        def enter() -> Any:
            with context() as lease:
                return asyncio.run_coroutine_threadsafe(play(lease), loop).result()

        return self.does(enter)

    def listing(self, prefix: str = "", **kind: Any) -> "asyncio.Future[list[Any]]":
        return self.does(lambda: list(self.client.list(prefix, **kind)))

    async def leaves(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class AsyncActor(Actor):
    colour = "asyncio"
    connect = staticmethod(gripfast.connect_async)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._told: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self.task = asyncio.create_task(self._live(), name=self.name)

    @staticmethod
    async def disconnect(client: Any) -> None:
        await client.aclose()

    @staticmethod
    def function(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        async def function(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        return function

    def does(self, work: Work, then: Callable[[Any], Any] = _as_it_is) -> "asyncio.Future[Any]":
        async def do() -> Any:
            made = work()
            return then(await made if inspect.isawaitable(made) else made)

        return self._tell(do)

    def enters(self, context: Work, body: Body) -> "asyncio.Future[Any]":
        async def enter() -> Any:
            async with context() as lease:
                return await body(lease)

        return self._tell(enter)

    def listing(self, prefix: str = "", **kind: Any) -> "asyncio.Future[list[Any]]":
        async def collect() -> list[Any]:
            return [info async for info in self.client.list(prefix, **kind)]

        return self._tell(collect)

    async def leaves(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def _tell(self, work: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def obey() -> None:
            try:
                answer.set_result(await work())
            except asyncio.CancelledError:
                answer.cancel()
                raise  # a cancelled actor does nothing more
            except BaseException as error:
                answer.set_exception(error)
                answer.exception()  # looked at: a test may end without, and nobody is to be told of that later

        self._told.put_nowait(obey)
        return answer

    async def _live(self) -> None:
        while True:
            await (await self._told.get())()


COLOURS: dict[str, type[Actor]] = {"blocking": BlockingActor, "asyncio": AsyncActor}


class World:
    """The scene of one test: a lock space and the actors in it, all of one colour."""

    def __init__(self, url: str, colour: type[Actor]) -> None:
        self.url = url
        self.colour = colour
        self._clients: list[Any] = []
        self._actors: list[Actor] = []
        self._watcher: Actor | None = None

    def connect(self, target: str | None = None, **options: Any) -> Any:
        client = self.colour.connect(target or self.url, **options)
        watch_for_waiters(client)
        self._clients.append(client)
        return client

    def url_with(self, option: str) -> str:
        """The URL with one more option in its query."""
        return f"{self.url}{'&' if '?' in self.url else '?'}{option}"

    def actor(self, client: Any = None, **options: Any) -> Any:
        actor = self.colour(client or self.connect(**options))
        self._actors.append(actor)
        return actor

    def actors(self, count: int, client: Any = None) -> list[Any]:
        return [self.actor(client) for _ in range(count)]

    async def inspect(self, name: str, **kind: str) -> Any:
        """What an onlooker with a client of its own sees."""
        if self._watcher is None:
            self._watcher = self.actor()
        return await self._watcher.inspect(name, **kind)

    async def queued(self, name: str, waiters: int, seen_by: Actor | None = None, **kind: str) -> None:
        """Wait until so many wait for the lock."""

        async def so_many_wait() -> bool:
            if not self._clients[0].capabilities.waiters_seen:
                return waiters_among(self._clients, name) == waiters
            info = await (seen_by or self).inspect(name, **kind)
            return (info.waiters if info else 0) == waiters

        await auntil(so_many_wait)

    async def free(self, name: str, within: float = 5.0, **kind: str) -> None:
        """Wait until nobody holds the lock."""

        async def nobody_holds() -> bool:
            return await self.inspect(name, **kind) is None

        await auntil(nobody_holds, within)

    async def close(self) -> None:
        for client in self._clients:
            await self.colour.disconnect(client)
        for actor in self._actors:
            await actor.leaves()


def running() -> set[Any]:
    """The threads and tasks of this process that are neither the test's own nor an actor's nor the event loop's."""
    tasks = {task for task in asyncio.all_tasks() if not task.get_name().startswith(ACTOR)}
    threads = {t for t in threading.enumerate() if not t.name.startswith((ACTOR, "asyncio_"))}
    return (tasks - {asyncio.current_task()}) | threads


def open_files() -> dict[str, str]:
    """What each file descriptor of this process points at (empty where the system does not tell)."""
    found = {}
    for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the descriptor that listed the directory
    return found


def renewal_of(lease: Any) -> Callable[[], bool]:
    """A condition to wait for: that the lease has more time left than when it was last looked at."""
    seen = lease.remaining()

    def has_come() -> bool:
        nonlocal seen
        before, seen = seen, lease.remaining()
        return bool(seen > before)

    return has_come


def play(test: Callable[..., Awaitable[None]], arguments: dict[str, Any]) -> None:
    """Run one async test body on an event loop of its own and close the worlds it was given."""

    async def performance() -> None:
        try:
            await test(**arguments)
        finally:
            for world in arguments.values():
                if isinstance(world, World):
                    await world.close()

    asyncio.run(performance())
