"""Right uses: no type checker may report a line of this file. Nobody runs it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, NoReturn, Unpack, assert_type

import gripfast
from gripfast import (
    Acquiring,
    AsyncClient,
    AsyncElection,
    AsyncLease,
    AsyncLock,
    AsyncLost,
    Client,
    Election,
    Leader,
    Lease,
    LeaseLost,
    Lock,
    LockInfo,
    LockKwargs,
    LockTimeout,
    Lost,
    PermitKwargs,
    Reason,
)
from gripfast.testing import Clock, Held, OncePerRun, World

client = gripfast.connect("redis://localhost:6379/0", ttl=20)
aclient = gripfast.connect_async(["redis://a", "redis://b", "redis://c"])
assert_type(client, Client)
assert_type(aclient, AsyncClient)


# -- locks -------------------------------------------------------------------------------------------------------------


def on_lost(lease: Lease, reason: Reason) -> None:
    print(lease.name, reason)


async def on_lost_async(lease: AsyncLease, reason: Reason) -> None:
    await lease.lost.wait()


lock = client.lock("job", 30, max_hold=3600.0, label="nightly", on_lost=on_lost, wait=5)
alock = aclient.lock("job", ttl=0.5, renew=False, reentrant=True, on_lost=on_lost_async, wait=None)
assert_type(lock, Lock)
assert_type(alock, AsyncLock)
assert_type(gripfast.lock("job", ttl=5, wait=5, on_lost=on_lost), Lock)
assert_type(gripfast.async_lock("job", wait=0.5, on_lost=lambda lease, reason: print(lease.token, reason)), AsyncLock)


def sync_code() -> int:
    with lock as lease:
        assert_type(lease, Lease)
        lease.ensure_held()
        assert_type(lease.extend(), None)
        assert_type(lease.lost, Lost)
        assert_type(lease.lost.wait(5), bool)
    assert_type(lock.acquire(), Lease)
    assert_type(lock.acquire(5), Lease)
    with lock.acquire(wait=None) as lease:
        assert_type(lease, Lease)
    if (tried := lock.try_acquire()) is not None:
        assert_type(tried, Lease)
        tried.release()
    assert_type(lock.try_acquire(), Lease | None)
    with gripfast.lock("job") as lease:
        return lease.token  # the block is left by a `return`: nothing is missing after it


async def async_code() -> float:
    async with alock as lease:
        assert_type(lease, AsyncLease)
        assert_type(await lease.extend(5), None)
        assert_type(lease.lost, AsyncLost)
        assert_type(await lease.lost.wait(), bool)
    assert_type(alock.acquire(), Acquiring)
    assert_type(await alock.acquire(wait=5), AsyncLease)
    async with alock.acquire(wait=None) as lease:
        assert_type(lease, AsyncLease)
    assert_type(await alock.try_acquire(), AsyncLease | None)
    async with gripfast.async_lock("job") as lease:
        return lease.remaining()


def operators() -> Iterator[LockInfo]:
    if (info := client.inspect("job")) is not None:
        assert_type(info, LockInfo)
    assert_type(client.force_release("job"), bool)
    yield from client.list("job:")


async def async_operators() -> list[str]:
    assert_type(await aclient.inspect("job"), LockInfo | None)
    return [info.name async for info in aclient.list()]


def told(error: LockTimeout | LeaseLost) -> str:
    if isinstance(error, LeaseLost):
        assert_type(error.reason, Reason)
        return error.reason
    return error.holder.host if error.holder else error.name


def my_lock(name: str, **settings: Unpack[LockKwargs[Lease]]) -> Lock:
    """A function of the user's own that passes settings on."""
    return client.lock(f"mine:{name}", **settings)


# -- the decorator -----------------------------------------------------------------------------------------------------


@client.locked("report:{user_id}", ttl=30, wait=5, on_lost=on_lost)
def report(user_id: int, kind: str = "daily", *, deep: bool = False) -> str:
    lease = gripfast.current_lease()
    assert_type(lease, Lease | AsyncLease)
    assert_type(lease.token, int)
    lease.ensure_held()
    gripfast.current_lease(Lease).extend()
    return f"{user_id} {kind} {deep}"


assert_type(report(7), str)
assert_type(report(7, "weekly", deep=True), str)
assert_type(report.__name__, str)


@client.locked("report:{user_id}", wait=0, busy="skip")
def skipped(user_id: int, kind: str = "daily", *, deep: bool = False) -> str:
    return f"{user_id} {kind} {deep}"


assert_type(skipped(7), str | None)
assert_type(skipped(7, "weekly", deep=True), str | None)


def count_and_say(error: LockTimeout) -> int:
    return len(error.name)


async def say_later(error: LockTimeout) -> int:
    await asyncio.sleep(0)
    return len(error.name)


@client.locked("report:{user_id}", wait=0, busy=count_and_say)
def answered(user_id: int) -> str:
    return str(user_id)


assert_type(answered(7), str | int)


@client.locked("report:{user_id}", wait=1, busy=lambda busy: busy.waited)
def answered_by_lambda(user_id: int) -> str:
    return str(user_id)


assert_type(answered_by_lambda(7), str | float)


with client.locks("a", "b", ttl=5, wait=1) as several:
    assert_type(several, gripfast.Leases)
    assert_type(several.tokens, dict[str, int])
assert_type(client.locks("a").try_acquire(), gripfast.Leases | None)


async def several_at_once() -> None:
    async with aclient.locks("a", "b") as leases:
        assert_type(leases, gripfast.AsyncLeases)
    assert_type(await aclient.locks("a").acquire(wait=5), gripfast.AsyncLeases)
    assert_type(await aclient.locks("a").try_acquire(), gripfast.AsyncLeases | None)


with client.semaphore("api", 3, ttl=5, wait=1) as permit:
    assert_type(permit, gripfast.SemaphoreLease)
    assert_type(permit.slots, tuple[int, ...])
semaphore = client.semaphore("api", limit=3)
rwlock = client.rwlock("index", label="indexer")
assert_type(semaphore.acquire(2, wait=5), gripfast.SemaphoreLease)
assert_type(semaphore.try_acquire(n=2), gripfast.SemaphoreLease | None)
with semaphore.acquire(2) as two, rwlock.write().acquire() as alone:
    assert_type(two, gripfast.SemaphoreLease)
    assert_type(alone, gripfast.WriteLease)
semaphore.resize(semaphore.limit + 1)

with rwlock.read() as read_lease:
    assert_type(read_lease, gripfast.Lease)
with rwlock.write() as write_lease:
    assert_type(write_lease, gripfast.WriteLease)
    write_lease.downgrade()
assert_type(rwlock.write().acquire(wait=5), gripfast.WriteLease)
assert_type(rwlock.write().try_acquire(), gripfast.WriteLease | None)
assert_type(client.inspect("job"), gripfast.LockInfo | None)
assert_type(client.inspect("api", kind="semaphore"), gripfast.PermitInfo | None)
assert_type([each.slots for info in client.list(kind="semaphore") for each in info.holders], list[tuple[int, ...]])
assert_type(client.force_release("api", kind="semaphore", slot=1), bool)


async def permits() -> None:
    async with aclient.semaphore("api", 3) as lease:
        assert_type(lease, gripfast.AsyncSemaphoreLease)
    assert_type(await aclient.semaphore("api", 3).acquire(2, wait=5), gripfast.AsyncSemaphoreLease)
    assert_type(await aclient.semaphore("api", 3).try_acquire(), gripfast.AsyncSemaphoreLease | None)
    async with aclient.rwlock("index").read() as reading:
        assert_type(reading, gripfast.AsyncLease)
    async with aclient.rwlock("index").write() as writing:
        assert_type(writing, gripfast.AsyncWriteLease)
        await writing.downgrade()
    assert_type(await aclient.rwlock("index").write().acquire(wait=5), gripfast.AsyncWriteLease)
    assert_type(await aclient.rwlock("index").write().try_acquire(), gripfast.AsyncWriteLease | None)
    assert_type(await aclient.inspect("index", kind="rwlock"), gripfast.PermitInfo | None)
    assert_type([info.limit async for info in aclient.list(kind="semaphore")], list[int])


def refuse(error: LockTimeout) -> NoReturn:
    raise SystemExit(str(error))


@client.locked("report:{user_id}", wait=0, busy=refuse)
def refused(user_id: int) -> str:
    return str(user_id)


assert_type(refused(7), str)


@client.locked("report:{user_id}", wait=0, busy="raise")
async def later(user_id: int) -> str:
    lease = gripfast.current_lease(AsyncLease)
    assert_type(lease, AsyncLease)
    await lease.extend()
    return str(user_id)


@client.locked("report:{user_id}", wait=0, busy="skip")
async def later_or_none(user_id: int) -> str:
    return str(user_id)


@client.locked("report:{user_id}", wait=0, busy=count_and_say)
async def later_or_plain(user_id: int) -> str:
    return str(user_id)


@client.locked("report:{user_id}", wait=0, busy=say_later)
async def later_or_later(user_id: int) -> str:
    return str(user_id)


@aclient.locked("report:{user_id}", on_lost=on_lost_async)
async def of_async_client(user_id: int) -> str:
    return str(user_id)


@aclient.locked("report:{user_id}", wait=0, busy="skip")
async def of_async_client_or_none(user_id: int) -> str:
    return str(user_id)


@aclient.locked("report:{user_id}", wait=0, busy=count_and_say)
async def of_async_client_or_plain(user_id: int) -> str:
    return str(user_id)


@aclient.locked("report:{user_id}", wait=0, busy=say_later)
async def of_async_client_or_later(user_id: int) -> str:
    return str(user_id)


async def call_them() -> None:
    assert_type(await later(7), str)
    assert_type(await later_or_none(7), str | None)
    assert_type(await later_or_plain(user_id=7), str | int)
    assert_type(await later_or_later(7), str | int)
    assert_type(await of_async_client(7), str)
    assert_type(await of_async_client_or_none(7), str | None)
    assert_type(await of_async_client_or_plain(7), str | int)
    assert_type(await of_async_client_or_later(7), str | int)
    async with asyncio.TaskGroup() as group:
        group.create_task(later(7))
        group.create_task(later_or_none(7))


class Account:
    @client.locked("account:{number}")
    def pay(self, number: int) -> str:
        return f"paid {number}"

    @client.locked("account:{number}", wait=0, busy="skip")
    def pay_or_skip(self, number: int) -> str:
        return f"paid {number}"

    @client.locked("account:{number}", wait=0, busy="skip")
    async def pay_later(self, number: int) -> str:
        return f"paid {number}"

    @functools.cached_property
    def decorator(self) -> Callable[[Callable[[], int]], Callable[[], int]]:
        return client.locked("account")


async def call_methods(account: Account) -> None:
    assert_type(account.pay(7), str)
    assert_type(account.pay_or_skip(number=7), str | None)
    assert_type(await account.pay_later(7), str | None)


def decorated_elsewhere(function: Callable[[int], Coroutine[Any, Any, bytes]]) -> None:
    assert_type(client.locked("job")(function), Callable[[int], Coroutine[Any, Any, bytes]])


# -- the decorators of semaphores and read/write locks -----------------------------------------------------------------


@client.limited("api:{user_id}", 3, ttl=30, wait=5, on_lost=on_lost)
def limited(user_id: int, kind: str = "daily") -> str:
    assert_type(gripfast.current_lease(gripfast.SemaphoreLease).slots, tuple[int, ...])
    return f"{user_id} {kind}"


@client.limited("api:{user_id}", limit=3, wait=0, busy="skip")
def limited_or_none(user_id: int) -> str:
    return str(user_id)


@client.limited("api:{user_id}", limit=3, wait=0, busy=say_later)
async def limited_later(user_id: int) -> str:
    lease = gripfast.current_lease(gripfast.AsyncSemaphoreLease)
    assert_type(lease, gripfast.AsyncSemaphoreLease)
    return str(user_id)


@aclient.limited("api:{user_id}", 3, on_lost=on_lost_async, wait=0, busy=count_and_say)
async def limited_async(user_id: int) -> str:
    return str(user_id)


@client.read_locked("index:{shard}", wait=0, busy=count_and_say)
def read(shard: int) -> str:
    return str(shard)


@client.write_locked("index:{shard}")
def write(shard: int) -> str:
    gripfast.current_lease(gripfast.WriteLease).downgrade()
    return str(shard)


@aclient.read_locked("index:{shard}", wait=0, busy="skip")
async def read_async(shard: int) -> str:
    return str(shard)


@aclient.write_locked("index:{shard}", label="indexer")
async def write_async(shard: int) -> str:
    await gripfast.current_lease(gripfast.AsyncWriteLease).downgrade()
    return str(shard)


def my_semaphore(name: str, **settings: Unpack[PermitKwargs[gripfast.SemaphoreLease]]) -> gripfast.Semaphore:
    return client.semaphore(f"mine:{name}", 3, **settings)


async def call_those_with_permits() -> None:
    assert_type(limited(7, kind="weekly"), str)
    assert_type(limited_or_none(7), str | None)
    assert_type(await limited_later(7), str | int)
    assert_type(await limited_async(7), str | int)
    assert_type(read(7), str | int)
    assert_type(write(shard=7), str)
    assert_type(await read_async(7), str | None)
    assert_type(await write_async(7), str)


# -- elections ---------------------------------------------------------------------------------------------------------

election = client.election("beat", "host:8000", 20, max_hold=3600, on_lost=on_lost, group="beats")
aelection = aclient.election("beat", value="host:8000", ttl=20, on_lost=on_lost_async)
assert_type(election, Election)
assert_type(aelection, AsyncElection)


def serve(term: Lease) -> int:
    term.ensure_held()
    return term.token


async def serve_async(term: AsyncLease) -> int:
    await term.extend()
    return term.token


def elections() -> None:
    with election.lead(wait=5) as term:
        assert_type(term, Lease)
    assert_type(election.try_lead(), Lease | None)
    assert_type(election.leader(), Leader | None)
    assert_type(election.watch(), Iterator[Leader | None])
    assert_type(election.run(serve), int)
    assert_type(election.run(lambda term: str(term.token)), str)
    for leader in election.watch():
        assert_type(leader, Leader | None)
        if leader:
            assert_type(leader.value, str)


async def elections_of_tasks() -> None:
    async with aelection.lead(wait=None) as term:
        assert_type(term, AsyncLease)
    assert_type(await aelection.lead(), AsyncLease)
    assert_type(await aelection.try_lead(), AsyncLease | None)
    assert_type(await aelection.leader(), Leader | None)
    assert_type(aelection.watch(), AsyncIterator[Leader | None])
    assert_type(await aelection.run(serve_async), int)
    async for leader in aelection.watch():
        assert_type(leader, Leader | None)


@client.elected("shard:{number}", "me", ttl=5, group="shards")
def shard(number: int) -> str:
    return str(number)


@client.elected("shard:{number}")
async def shard_later(number: int) -> str:
    return str(number)


@aclient.elected("shard:{number}", value="me", on_lost=on_lost_async)
async def shard_of_async_client(number: int) -> str:
    return str(number)


async def call_shards() -> None:
    assert_type(shard(7), str)
    assert_type(await shard_later(7), str)
    assert_type(await shard_of_async_client(number=7), str)


# -- done once, kept, handed over ----------------------------------------------------------------------------------

client.lock("job", min_hold=60)
client.lock("job", lazy_release=client.capabilities.lazy_release)
client.locks("a", "b", lazy_release=True)
client.locked("job", lazy_release=True)
aclient.lock("job", lazy_release=True)
with client.once("digest", keep=86400, wait=None, label="nightly") as run:
    assert_type(run, gripfast.Run)
    if run:
        assert_type(run.lease, gripfast.Lease)
    assert_type(run.holder, gripfast.LockInfo | None)
assert_type(client.forget("digest"), bool)


@client.once("digest:{day}", keep=86400)
def send_digest(day: str) -> int:
    return len(day)


assert_type(send_digest("monday"), int | None)

detached = client.lock("job").acquire().detach(ttl=60)
assert_type(detached, str)
assert_type(client.adopt(detached, label="worker"), gripfast.Lease)


async def once_and_handed_over() -> None:
    async with aclient.once("digest", keep=86400) as arun:
        assert_type(arun, gripfast.AsyncRun)
        assert_type(arun.lease, gripfast.AsyncLease)

    @aclient.once("digest:{day}", keep=86400)
    async def send(day: str) -> int:
        return len(day)

    assert_type(await send("monday"), int | None)
    text = await (await aclient.lock("job").acquire()).detach()
    assert_type(await aclient.adopt(text), gripfast.AsyncLease)
    async with aclient.adopt(text) as adopted:
        assert_type(adopted, gripfast.AsyncLease)
    assert_type(await aclient.forget("digest"), bool)


def of_a_test(world: World, once_per_run: OncePerRun) -> None:
    assert_type(world.client, gripfast.Client)
    assert_type(world.async_client, gripfast.AsyncClient)
    assert_type(world.clock, Clock)
    with world.hold("job", label="cron", seconds=5) as held, world.outage(), world.clock.fast_forward():
        assert_type(held, Held)
    world.lose(client.lock("job").acquire(), "taken")
    world.lose("job", "broken", note="maintenance")
    assert_type(once_per_run("url", lambda: "sqlite:///shop.db", cleanup=len), str)
