"""Right uses: no type checker may report a line of this file. Nobody runs it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn, Unpack, assert_type

import gripfast
from gripfast import (
    Acquiring,
    AsyncClient,
    AsyncLease,
    AsyncLock,
    AsyncLost,
    Client,
    Lease,
    LeaseLost,
    Lock,
    LockInfo,
    LockKwargs,
    LockTimeout,
    Lost,
    Reason,
)

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


@client.locked("report:{user_id}", busy=count_and_say)
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


@client.locked("report:{user_id}", busy="raise")
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

    @client.locked("account:{number}", busy="skip")
    def pay_or_skip(self, number: int) -> str:
        return f"paid {number}"

    @client.locked("account:{number}", busy="skip")
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
