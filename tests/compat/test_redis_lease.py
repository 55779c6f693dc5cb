"""What Gripfast's lock classes do otherwise than redis-py's, on purpose: leases, loss, waiting, sharing."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.lock
from redis.exceptions import DataError, LockError, LockNotOwnedError

import gripfast
from compat.redis_kinds import OURS, Kind, new_name
from gripfast.compat.redis import AsyncLock, Lock
from gripfast.compat.redis.tokens import Renaming
from support.redis_server import shared_server
from support.waiting import auntil, until

our_kinds = pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.label)


@pytest.fixture
def server() -> Iterator["redis.Redis"]:
    """To look at the key, and to be someone else."""
    with shared_server().client() as client:
        yield client


@pytest.fixture
def name() -> str:
    return new_name()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks without a timeout are renewed every 200 ms."""
    monkeypatch.setattr("gripfast.compat.redis.shape.TTL", 0.6)


@contextlib.asynccontextmanager
async def lock_of(kind: Kind, name: Any, **settings: Any) -> AsyncIterator[Any]:
    async with kind.client() as client:
        yield kind.lock(client, name, **settings)


async def renewals_seen(server: Any, name: str, count: int) -> None:
    """Until the key's life was seen to grow so often."""
    last = [server.pttl(name)]

    async def grew() -> bool:
        last.append(server.pttl(name))
        assert last[-1] > 0
        return last[-1] > last[-2]

    for _ in range(count):
        await auntil(grew)


# Leases -------------------------------------------------------------------------------------------------------------


@our_kinds
async def test_without_a_timeout_it_is_a_lease_and_not_for_ever(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        assert 25_000 < server.pttl(name) <= 30_000
        await lock.release()


@our_kinds
@pytest.mark.parametrize("token", [None, "of mine"])
async def test_without_a_timeout_it_is_renewed(
    kind: Kind, name: str, server: Any, quick: None, token: str | None
) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire(token=token)
        await renewals_seen(server, name, 5)
        assert await lock.owned()
        await lock.release()
    assert server.get(name) is None


@our_kinds
async def test_with_a_timeout_it_is_not_renewed_and_told_lost(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=0.2) as lock:
        await lock.acquire()
        lease = lock.lease
        await auntil(lambda: server.get(name) is None)
        assert lease.lost.is_set()
        assert not lease.held
        with pytest.raises(LockNotOwnedError) as caught:
            await lock.release()
        assert isinstance(caught.value.__cause__, gripfast.LeaseLost)
        assert caught.value.lock_name == name


@our_kinds
async def test_ownership_ends_by_the_clock_even_where_the_server_keeps_the_key(
    kind: Kind, name: str, server: Any
) -> None:
    async with lock_of(kind, name, timeout=1.0) as lock:
        await lock.acquire()
        lease = lock.lease
        server.set(name, lock.local.token, px=60_000)
        await auntil(lambda: not lease.held)
        assert not await lock.owned()
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        await auntil(lambda: server.get(name) is None)


@our_kinds
async def test_the_lease_leads_to_the_api(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        assert lock.lease is None
        async with lock:
            lease: Any = lock.lease
            assert lease.held
            assert lease.name == name
            assert lease.owner.encode() == lock.local.token
            assert 25.0 < lease.remaining() < 30.0
        assert lock.lease is None


@our_kinds
@pytest.mark.parametrize("token", [None, "of mine"])
async def test_fencing_tokens_grow(kind: Kind, name: str, token: str | None) -> None:
    async with lock_of(kind, name) as lock:
        seen = []
        for _ in range(3):
            await lock.acquire(token=token)
            seen.append(lock.fencing_token)
            await lock.release()
        assert 0 < seen[0] < seen[1] < seen[2]
        with pytest.raises(LockError, match="unlocked"):
            _ = lock.fencing_token


@our_kinds
async def test_one_token_may_serve_for_several_names(kind: Kind, server: Any, quick: None) -> None:
    names = [new_name() for _ in range(3)]
    async with kind.client() as client:
        locks = [kind.lock(client, each) for each in names]
        for lock in locks:
            assert await lock.acquire(token="same") is True
        await locks[0].release()
        for name, lock in zip(names[1:], locks[1:], strict=True):
            await renewals_seen(server, name, 3)
            assert await lock.owned()
            await lock.release()
    assert [server.get(name) for name in names] == [None] * 3


@our_kinds
async def test_a_lock_known_by_its_token_alone_has_no_lease(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "from afar", px=10_000)
    async with lock_of(kind, name) as lock:
        lock.local.token = "from afar"
        assert lock.lease is None
        with pytest.raises(LockError):
            _ = lock.fencing_token


@our_kinds
async def test_setting_the_same_token_again_keeps_the_lease(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        lease = lock.lease
        lock.local.token = lock.local.token
        assert lock.lease is lease
        await lock.release()
        assert not lease.held


@our_kinds
async def test_what_the_body_raised_comes_first(
    kind: Kind, name: str, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with lock_of(kind, name) as lock:
        with pytest.raises(ZeroDivisionError):
            async with lock:
                server.delete(name)
                _ = 1 / 0
    assert "released or lost before the end of its block" in caplog.text


@our_kinds
async def test_a_ttl_that_would_delete_the_key_is_refused(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as lock:
        await lock.acquire()
        with pytest.raises(DataError, match="timeout must be"):
            await lock.extend(-20)
        with pytest.raises(DataError, match="timeout must be"):
            await lock.extend(0, replace_ttl=True)
        assert await lock.owned()
        await lock.release()


@our_kinds
@pytest.mark.parametrize("timeout", [-1, 0.009, 86_401, float("nan"), float("inf"), "10", True])
async def test_a_timeout_that_no_lease_can_have_is_refused_at_once(kind: Kind, name: str, timeout: Any) -> None:
    with pytest.raises(DataError, match="timeout must be") as caught:
        async with lock_of(kind, name, timeout=timeout):
            pass
    assert isinstance(caught.value.__cause__, gripfast.ConfigurationError)


@our_kinds
@pytest.mark.parametrize("bad", ["", "n\0l", b"\xff", "x" * 513])
async def test_a_name_that_no_lock_can_have_is_refused_at_once(kind: Kind, bad: Any) -> None:
    with pytest.raises(DataError, match="name"):
        async with lock_of(kind, bad):
            pass


@pytest.mark.parametrize(("cls", "colour"), [(Lock, OURS[1]), (AsyncLock, OURS[0])])
async def test_a_client_of_the_other_colour_is_refused(cls: type, colour: Kind, name: str) -> None:
    async with colour.client() as client:
        with pytest.raises(DataError, match=r"AsyncLock a redis\.asyncio\.Redis"):
            client.lock(name, lock_class=cls)


@our_kinds
async def test_its_repr_names_the_lock_and_the_server_but_no_password(kind: Kind, name: str) -> None:
    async with kind.client(username="default", password="sesame") as client:
        shown = repr(client.lock(name, lock_class=kind.cls))
    assert f"compat.redis.{kind.cls.__name__} {name!r} on redis://127.0.0.1:" in shown
    assert "sesame" not in shown


# Waiting ------------------------------------------------------------------------------------------------------------


async def waiters(client: gripfast.AsyncClient, name: str) -> int:
    info = await client.inspect(name)
    return info.waiters if info else 0


@contextlib.asynccontextmanager
async def native(prefix: str = "") -> AsyncIterator[gripfast.AsyncClient]:
    async with gripfast.connect_async(shared_server().url, prefix=prefix) as client:
        yield client


async def test_tasks_get_it_in_the_order_they_came_whatever_they_would_sleep(name: str) -> None:
    async with OURS[1].client() as client, native() as watcher:
        lock, log = client.lock(name, lock_class=AsyncLock, sleep=3600), []

        async def work(number: int) -> None:
            async with lock:
                log.append(number)

        tasks: list[asyncio.Task[None]] = []

        async def all_wait() -> bool:
            return await waiters(watcher, name) == len(tasks)

        async with lock:
            for number in range(5):
                tasks.append(asyncio.create_task(work(number)))
                await auntil(all_wait)
        await asyncio.gather(*tasks)
        assert log == [0, 1, 2, 3, 4]


@our_kinds
async def test_gripfasts_own_locks_and_these_are_the_same_lock(kind: Kind, name: str) -> None:
    async with native() as client, lock_of(kind, name) as lock:
        async with client.lock(name):
            assert await lock.acquire(blocking=False) is False
        async with lock:
            assert await client.lock(name).try_acquire() is None


@our_kinds
async def test_redis_pys_lock_and_this_one_exclude_each_other(kind: Kind, name: str, server: Any) -> None:
    theirs = server.lock(name, timeout=10)
    async with lock_of(kind, name) as lock:
        theirs.acquire()
        assert await lock.acquire(blocking=False) is False
        theirs.release()
        async with lock:
            assert theirs.acquire(blocking=False) is False


# Sharing ------------------------------------------------------------------------------------------------------------


def test_threads_that_share_an_object_each_have_their_own_token(name: str, server: Any) -> None:
    lock = Lock(server, name)
    with ThreadPoolExecutor(1) as elsewhere, lock:
        assert elsewhere.submit(lambda: lock.local.token).result() is None
        assert elsewhere.submit(lambda: lock.lease).result() is None
        assert elsewhere.submit(lock.owned).result() is False
        with pytest.raises(LockError, match="already unlocked"):
            elsewhere.submit(lock.release).result()
        assert lock.owned()


def test_without_thread_local_any_thread_may_release(name: str, server: Any) -> None:
    lock = Lock(server, name, thread_local=False)
    with ThreadPoolExecutor(1) as elsewhere:
        lock.acquire()
        assert elsewhere.submit(lambda: lock.local.token).result() == lock.local.token
        assert elsewhere.submit(lock.owned).result() is True
        elsewhere.submit(lock.release).result()
    assert lock.local.token is None
    assert server.get(name) is None


def test_a_thread_may_pass_its_token_on(name: str, server: Any) -> None:
    lock = Lock(server, name, timeout=10)

    def release(token: bytes | None) -> None:
        lock.local.token = token
        lock.release()

    with ThreadPoolExecutor(1) as elsewhere:
        lock.acquire()
        elsewhere.submit(release, lock.local.token).result()
    assert server.get(name) is None
    with pytest.raises(LockNotOwnedError):
        lock.release()


@pytest.mark.parametrize("thread_local", [True, False])
def test_the_thread_that_lost_it_does_not_release_the_one_that_has_it_now(
    name: str, server: Any, thread_local: bool
) -> None:
    lock = Lock(server, name, timeout=60, thread_local=thread_local)
    with ThreadPoolExecutor(1) as elsewhere:
        lock.acquire()
        server.delete(name)
        assert elsewhere.submit(lock.acquire).result() is True
        held = server.get(name)
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert server.get(name) == held
        elsewhere.submit(lock.release).result()
    assert server.get(name) is None


async def test_the_task_that_lost_it_does_not_release_the_one_that_has_it_now(name: str, server: Any) -> None:
    async with OURS[1].client() as client:
        lock = client.lock(name, lock_class=AsyncLock, timeout=60)
        await lock.acquire()
        server.delete(name)
        has_it, may_leave = asyncio.Event(), asyncio.Event()

        async def winner() -> None:
            async with lock:
                has_it.set()
                await may_leave.wait()
                assert await lock.owned()

        winning = asyncio.create_task(winner())
        await has_it.wait()
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        may_leave.set()
        await winning
        assert server.get(name) is None


async def test_any_task_may_release_it(name: str, server: Any) -> None:
    async with OURS[1].client() as client:
        lock = client.lock(name, lock_class=AsyncLock)
        await asyncio.create_task(lock.acquire())
        await asyncio.create_task(lock.release())
    assert server.get(name) is None


def test_one_object_serves_several_event_loops(name: str, server: Any) -> None:
    client: Any = redis.asyncio.Redis.from_url(shared_server().url)
    lock = client.lock(name, lock_class=AsyncLock)

    async def use() -> None:
        async with lock:
            assert await lock.owned()

    for _ in range(3):
        asyncio.run(use())
    assert server.get(name) is None


def test_a_lock_acquired_in_another_event_loop_can_be_released(name: str, server: Any) -> None:
    client: Any = redis.asyncio.Redis.from_url(shared_server().url)
    lock = client.lock(name, lock_class=AsyncLock)
    assert asyncio.run(lock.acquire()) is True
    assert server.get(name) == lock.local.token
    asyncio.run(lock.release())
    until(lambda: server.get(name) is None)
    assert lock.local.token is None


async def test_tasks_that_never_release_leave_no_leases_in_the_object(name: str) -> None:
    async with OURS[1].client() as client:
        lock = client.lock(name, lock_class=AsyncLock, timeout=0.02)
        leases = []
        for _ in range(5):
            await asyncio.create_task(lock.acquire())
            leases.append(weakref.ref(lock.lease))
            await auntil(lambda: not lock.lease.held)
        gc.collect()
        assert [lease() is None for lease in leases] == [True] * 4 + [False]


# Ends ---------------------------------------------------------------------------------------------------------------


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The locks of which the log says so."""
    return [str(record.args[0]) for record in caplog.records if "was dropped" in record.msg]  # type: ignore[index]


@pytest.mark.parametrize("token", [None, "chosen"])
def test_an_object_that_is_dropped_gives_the_lock_back(
    name: str, server: Any, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    Lock(server, name).acquire(token=token)
    gc.collect()
    until(lambda: server.get(name) is None)
    until(lambda: dropped(caplog))
    with Lock(server, name):  # by the same watchdog, behind what there may be to say
        assert dropped(caplog) == [name]


def test_one_that_is_dropped_while_it_gets_its_token_is_told_of_once(
    name: str, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lease = gripfast.connect(server).lock(name).acquire()
    Renaming(lease, b"chosen").command()
    del lease
    until(lambda: dropped(caplog))
    until(lambda: server.get(name) is None)
    assert dropped(caplog) == [name]


def test_a_block_that_an_interrupt_has_dropped_is_no_mistake(
    name: str, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lock = Lock(server, name)
    leave = lock.__exit__  # as a `with` statement looks it up
    lock.__enter__()
    del leave
    until(lambda: server.get(name) is None)
    assert dropped(caplog) == []


def test_a_thread_that_ends_gives_the_lock_back(name: str, server: Any, caplog: pytest.LogCaptureFixture) -> None:
    lock = Lock(server, name)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    until(lambda: server.get(name) is None)
    until(lambda: dropped(caplog) == [name])


def test_without_thread_local_the_object_keeps_it_beyond_the_thread(name: str, server: Any) -> None:
    lock = Lock(server, name, thread_local=False)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert lock.owned()
    lock.release()


def test_a_token_that_is_forgotten_by_hand_gives_the_lock_back(
    name: str, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lock = Lock(server, name)
    lock.acquire()
    lock.local.token = None
    until(lambda: server.get(name) is None)
    until(lambda: dropped(caplog) == [name])


def test_an_exit_stack_enters_and_leaves_it(name: str, server: Any) -> None:
    lock = Lock(server, name)
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(lock) is lock
        assert lock.owned()
    assert server.get(name) is None
    assert not lock.locked()


async def test_an_async_exit_stack_enters_and_leaves_it(name: str, server: Any) -> None:
    async with OURS[1].client() as client:
        lock = client.lock(name, lock_class=AsyncLock)
        async with contextlib.AsyncExitStack() as stack:
            assert await stack.enter_async_context(lock) is lock
            assert await lock.owned()
        assert server.get(name) is None
