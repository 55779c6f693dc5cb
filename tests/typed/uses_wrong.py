"""Wrong uses: every type checker has to report each line with a mark, and no other. Nobody runs this file."""

from __future__ import annotations

from collections.abc import Callable

import gripfast
from gripfast import AsyncClient, AsyncLease, AsyncLock, Client, Lease, Lock, LockTimeout, Reason
from gripfast.testing import OncePerRun, World


def a_plain_function(user_id: int) -> str:
    return str(user_id)


async def a_coroutine_function(user_id: int) -> str:
    return str(user_id)


async def busy_later(error: LockTimeout) -> int:
    return len(error.name)


def names_that_are_not_there() -> None:
    gripfast.conect("memory://")  # wrong: a typing error
    gripfast.Barrier  # wrong: there is none  # noqa: B018


def settings(client: Client, aclient: AsyncClient) -> None:
    client.lock("job", ttl="30")  # wrong: seconds are numbers
    client.lock("job", wait="5")  # wrong: the same
    client.lock("job", tll=30)  # wrong: ttl
    client.lock("job", timeout=30)  # wrong: ttl or wait is meant
    client.lock(b"job")  # wrong: names are text
    client.lock("job", label=7)  # wrong: labels, too
    client.lock("job", on_lost=print_reason)  # wrong: it is called with the lease, too
    client.lock("job", on_lost=on_lost_async)  # wrong: it is called with a Lease
    aclient.lock("job", on_lost=on_lost_sync)  # wrong: it is called with an AsyncLease
    gripfast.lock("job", tll=30)  # wrong: ttl
    gripfast.lock("job", ttl="30")  # wrong: seconds are numbers
    gripfast.async_lock("job", tll=30)  # wrong: ttl


def print_reason(reason: Reason) -> None:
    print(reason)


def on_lost_sync(lease: Lease, reason: Reason) -> None:
    lease.lost.wait()


async def on_lost_async(lease: AsyncLease, reason: Reason) -> None:
    await lease.lost.wait()


def a_sync_lock(lock: Lock) -> None:
    lock.acquire(timeout=5)  # wrong: wait is meant
    lock.acquire(blocking=False)  # wrong: try_acquire() is meant
    lock.acquire("5")  # wrong: seconds are numbers
    lock.acquire(True, 5)  # wrong: it takes wait alone
    lock(print)  # wrong: it is no decorator
    gripfast.connect().locks(["a", "b"])  # wrong: locks(*names)
    gripfast.connect().locks("a", renew=False)  # wrong: they are always renewed
    gripfast.connect().semaphore("api")  # wrong: how many permits?
    gripfast.connect().semaphore("api", "3")  # wrong: a limit is a number
    gripfast.connect().semaphore("api", permits=3)  # wrong: limit
    gripfast.connect().semaphore("api", 3, reentrant=True)  # wrong: each acquire() gets its own
    gripfast.connect().semaphore("api", 3).acquire(timeout=5)  # wrong: wait is meant
    gripfast.connect().rwlock("index").acquire()  # wrong: read() or write() is acquired
    gripfast.connect().rwlock("index").read().acquire().downgrade()  # wrong: only a writer can
    gripfast.connect().inspect("api", kind="permit")  # wrong: no such kind
    gripfast.connect().once("a")  # wrong: keep is missing
    gripfast.connect().once("a", keep="7d")  # wrong: seconds
    gripfast.connect().adopt(b"text")  # wrong: text
    lock.try_acquire(5)  # wrong: it never waits
    lock.release()  # wrong: a lease is released
    lock.try_acquire().release()  # wrong: it may be None
    with lock.try_acquire() as lease:  # wrong: the same
        print(lease)
    with lock as own:
        own.extend("5")  # wrong: seconds are numbers
        own.lost()  # wrong: it is no method
        own.downgrade()  # wrong: only a writer can
        if own.lost.reason == "expired":  # wrong: the reason is in LeaseLost
            pass
    reason: Reason = "lost"  # wrong: no such reason
    print(reason)


async def a_sync_lock_awaited(lock: Lock) -> None:
    await lock.acquire()  # wrong: there is nothing to await
    async with lock:  # wrong: it is for `with`
        pass
    with lock as lease:
        await lease.release()  # wrong: there is nothing to await


def permits_handed_over(client: Client) -> str:
    return client.semaphore("api", 3).acquire().detach()  # wrong: only a lock can be handed over


def a_write_lock_handed_over(client: Client) -> str:
    return client.rwlock("index").write().acquire().detach()  # wrong: only a lock can be handed over


async def permits_handed_over_async(client: AsyncClient) -> str:
    lease = await client.semaphore("api", 3).acquire()
    return await lease.detach()  # wrong: only a lock can be handed over


async def a_write_lock_handed_over_async(client: AsyncClient) -> str:
    lease = await client.rwlock("index").write().acquire()
    return await lease.detach()  # wrong: only a lock can be handed over


async def an_async_lock(lock: AsyncLock) -> None:
    with lock:  # wrong: it is for `async with`
        pass
    with lock.acquire(wait=5):  # wrong: the same
        pass
    lock.acquire().release()  # wrong: it is not awaited
    lock.try_acquire()  # wrong: it is not awaited
    print((await lock.try_acquire()).token)  # wrong: it may be None
    lease = await lock.acquire()
    lease.release()  # wrong: it is not awaited
    lease.extend()  # wrong: it is not awaited
    with lease:  # wrong: it is for `async with`
        pass
    await lock.acquire(timeout=5)  # wrong: wait is meant


def decorators(client: Client, aclient: AsyncClient) -> None:
    client.locked(a_plain_function)  # wrong: it needs a name
    client.locked("job", busy="skp")  # wrong: a typing error
    client.locked("job", busy=None)  # wrong: "skip" is meant
    client.locked("job", busy=lambda: None)  # wrong: it is called with the LockTimeout
    client.locked("job", tll=5)  # wrong: ttl
    client.locked("job", busy="skip", wait="5")  # wrong: seconds are numbers
    aclient.locked("job", busy="skp")  # wrong: a typing error
    aclient.locked("job", tll=5)  # wrong: ttl
    aclient.locked("job")(a_plain_function)  # wrong: it is not async
    aclient.locked("job", busy="skip")(a_plain_function)  # wrong: it is not async
    client.locked("job", busy=busy_later)(a_plain_function)  # wrong: it can't await the busy function


def decorators_of_permits(client: Client, aclient: AsyncClient) -> None:
    client.limited("api")  # wrong: how many at a time?
    client.limited("api", "3")  # wrong: a limit is a number
    client.limited("api", 3, busy="skp")  # wrong: a typing error
    client.limited("api", 3, reentrant=True)  # wrong: each call gets a permit of its own
    client.limited("api", 3, min_hold=5)  # wrong: only locks have it
    client.limited("api", 3, lazy_release=True)  # wrong: only locks have it
    client.lock("job", lazy_release="yes")  # wrong: it is true or false
    client.election("job", lazy_release=True)  # wrong: only locks have it
    client.limited("api", 3, busy="skip")(a_plain_function)(7).upper()  # wrong: it may be None
    client.limited("api", 3, busy=busy_later)(a_plain_function)  # wrong: it can't await the busy function
    client.limited("api", 3)(a_plain_function)("7")  # wrong: an argument of the function
    aclient.limited("api", 3)(a_plain_function)  # wrong: it is not async
    client.read_locked(a_plain_function)  # wrong: it needs a name
    client.read_locked("index", busy="skip")(a_plain_function)(7).upper()  # wrong: it may be None
    client.write_locked("index", tll=5)  # wrong: ttl
    client.write_locked("index")(a_plain_function)("7")  # wrong: an argument of the function
    aclient.write_locked("index", busy="skip")(a_plain_function)  # wrong: it is not async
    gripfast.current_lease(Lease).slots  # wrong: only of a semaphore  # noqa: B018


def what_decorators_return(client: Client, aclient: AsyncClient) -> None:
    client.locked("job")(a_plain_function)("7")  # wrong: an argument of the function
    client.locked("job")(a_plain_function)(user=7)  # wrong: the same
    client.locked("job", busy="skip")(a_plain_function)("7")  # wrong: the same
    client.locked("job", busy="skip")(a_plain_function)(7).upper()  # wrong: it may be None
    client.locked("job", busy=len_of)(a_plain_function)(7).upper()  # wrong: it may be an int
    client.locked("job")(a_coroutine_function)(7)  # wrong: it is not awaited
    aclient.locked("job")(a_coroutine_function)("7").close()  # wrong: an argument of the function
    kept: Callable[[int], str] = client.locked("job", busy="skip")(a_plain_function)  # wrong: it may return None
    print(kept)


def len_of(error: LockTimeout) -> int:
    return len(error.name)


async def coroutine_functions(client: Client) -> str:
    skipped = client.locked("job", busy="skip")(a_coroutine_function)
    answered = client.locked("job", busy=busy_later)(a_coroutine_function)
    print((await answered(7)).upper())  # wrong: it may be an int
    return await skipped(7)  # wrong: it may be None


def current_leases() -> None:
    gripfast.current_lease().extned()  # wrong: a typing error
    gripfast.current_lease(Lock)  # wrong: no kind of lease
    lease: Lease = gripfast.current_lease()  # wrong: it may be an AsyncLease
    print(lease)
    gripfast.current_lease(AsyncLease).release()  # wrong: it is not awaited


async def elections(client: Client, aclient: AsyncClient) -> None:
    election, aelection = client.election("beat"), aclient.election("beat")
    client.election("beat", 8000)  # wrong: a value is text
    client.election("beat", wait=5)  # wrong: a campaign waits
    client.election("beat", on_lost=lambda term: None)  # wrong: it gets the reason, too
    aclient.election("beat", identifier="me")  # wrong: value
    election.lead(timeout=5)  # wrong: wait
    election.lead("5")  # wrong: seconds are numbers
    election.is_leader  # wrong: term.held  # noqa: B018
    election.resign()  # wrong: the term has it
    election.try_lead().release()  # wrong: it may be None
    election.leader().value  # wrong: there may be none  # noqa: B018
    election.run(a_plain_function)  # wrong: it is called with the term
    election.run(serve, 7)  # wrong: with nothing else
    async with election.lead():  # wrong: it is a plain one
        pass
    with aelection.lead():  # wrong: it is an async one
        pass
    (await aelection.try_lead()).token  # wrong: it may be None  # noqa: B018
    for _ in aelection.watch():  # wrong: async for
        pass
    await aelection.run(serve)  # wrong: it is not async
    aelection.leader()  # wrong: it is not awaited
    client.elected("beat")(a_plain_function)("7")  # wrong: an argument of the function
    client.elected("beat", 7)  # wrong: a value is text
    aclient.elected("beat")(a_plain_function)  # wrong: it is not async


def serve(term: Lease) -> int:
    return term.token


def of_a_test(world: World, once_per_run: OncePerRun) -> None:
    world.lose("job", "stolen")  # wrong: no such reason
    world.clock.advance("31")  # wrong: seconds are a number
    world.hold("job", 5)  # wrong: it has a name
    once_per_run("url", lambda: "sqlite:///shop.db", cleanup=abs)  # wrong: it gets a str
