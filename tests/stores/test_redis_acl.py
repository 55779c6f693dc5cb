"""The users that docs/redis.md describes can do all they need, and nothing else; every right they have is needed."""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
import redis.asyncio

import gripfast
from gripfast.cli.app import main
from gripfast.compat.redis import AsyncLock, Lock
from gripfast.fencing import write
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "redis.md").read_text(encoding="utf-8")
REPLICAS_PAGE = (DOCS / "redis-replicas.md").read_text(encoding="utf-8")
NAMES = ["nightly", "{user7}:mail", "a}b"]


def rules_of(user: str) -> list[str]:
    """The words of the ACL SETUSER line as the page prints it, from `reset` on."""
    [line] = re.findall(rf"^ACL SETUSER {user} (reset .*)$", PAGE, re.MULTILINE)
    return str(line).split()


def rules_of_levels() -> list[str]:
    """What the page about replicas adds for a grace."""
    [row] = re.findall(r"^\| the ACL rules `([^`]+)`", REPLICAS_PAGE, re.MULTILINE)
    return str(row).split()


LOCKS = rules_of("gripfast")
LEVELS = rules_of_levels()
WRITES = rules_of("writer")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client() as client:
        client.flushall()
        client.script_flush()
        yield client


def url_of(server: RedisServer, admin: "redis.Redis", user: str, rules: list[str], rest: str = "/0") -> str:
    """The server as this user, who is made for it."""
    admin.execute_command("ACL", "SETUSER", user, *rules)
    [password] = [rule[1:] for rule in rules if rule.startswith(">")]
    return f"redis://{user}:{password}@{HOST}:{server.port}{rest}"


# The life of a lock --------------------------------------------------------------------------------------------------


def live(url: str, name: str, admin: "redis.Redis", patience: float = 20) -> None:
    """Everything a client can ask for, once."""
    timing = {"request_timeout": patience, "connect_patience": patience}
    with gripfast.connect(url, **timing) as client, gripfast.connect(url, **timing) as other:
        first = client.lock(name).acquire(wait=patience)
        assert other.lock(name).try_acquire() is None
        first.extend()
        admin.script_flush()
        hand_over(first, other, name, patience)
        give_up_waiting(client, other, name)
        lost = [look_and_break(client, other, name), share(client, other, name, patience)]
        assert not any(lease.held for lease in lost)  # not dropped before: their losses are told on another thread
        keep_and_adopt(client, other, name)


def keep_and_adopt(client: gripfast.Client, other: gripfast.Client, name: str) -> None:
    with client.once(name, keep=60) as run:
        assert run
    with other.once(name, keep=60) as run:
        assert run.done
    assert other.forget(name)
    other.adopt(client.lock(name, min_hold=60).acquire().detach()).release()
    assert other.force_release(name)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What went wrong and is to be repeated in the background; force releases and losses are warnings, too."""
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [warning for warning in warnings if not re.match("released .* by force|lease on .* lost", warning)]


def hand_over(held: gripfast.Lease, other: gripfast.Client, name: str, patience: float) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.lock(name).acquire, wait=patience)
        until(lambda: waiting.done() or waiters(other, name) == 1, within=2 * patience)
        held.release()
        with waiting.result() as lease:
            assert lease.token > held.token
    assert other.inspect(name) is None


def waiters(client: gripfast.Client, name: str) -> int:
    info = client.inspect(name)
    return 0 if info is None else info.waiters


def give_up_waiting(client: gripfast.Client, other: gripfast.Client, name: str) -> None:
    with client.lock(name):
        with pytest.raises(gripfast.LockTimeout):
            other.lock(name).acquire(wait=0.01)
        assert waiters(client, name) == 0


def look_and_break(client: gripfast.Client, other: gripfast.Client, name: str) -> gripfast.Lease:
    lease = client.lock(name, label="life").acquire()
    assert [(info.name, info.label) for info in other.list()] == [(name, "life")]
    assert other.force_release(name, "deploy of v2")
    with pytest.raises(gripfast.LeaseLost) as loss:
        lease.extend()
    assert (loss.value.reason, loss.value.note) == ("broken", "deploy of v2")
    assert other.lock(name).try_acquire().release() is None
    return lease


def share(client: gripfast.Client, other: gripfast.Client, name: str, patience: float) -> gripfast.Lease:
    """Semaphores and read/write locks."""
    narrow, wide = client.semaphore(name, 3).acquire(), client.semaphore(name, 3).acquire(n=2)
    narrow.extend()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.semaphore(name, 3).acquire, wait=patience)
        until(lambda: waiting.done() or permit_waiters(client, name) == 1, within=2 * patience)
        narrow.release()
        taken_over = waiting.result()
        assert taken_over.slots == (0,)
    client.semaphore(name, 3).resize(4)
    assert [info.name for info in other.list(kind="semaphore")] == [name]
    assert other.force_release(name, "deploy of v2", kind="semaphore", slot=1)
    with pytest.raises(gripfast.LeaseLost):
        wide.extend()
    taken_over.release()
    with client.rwlock(name).write() as lease:
        lease.downgrade()
        assert other.rwlock(name).write().try_acquire() is None
        other.rwlock(name).read().acquire(wait=patience).release()
    return wide


def permit_waiters(client: gripfast.Client, name: str) -> int:
    info = client.inspect(name, kind="semaphore")
    return 0 if info is None else info.waiters


async def alive(url: str, name: str) -> None:
    """The main parts once more on asyncio, whose connections are others."""
    async with gripfast.connect_async(url) as client, gripfast.connect_async(url) as other:
        first = await client.lock(name).acquire()
        waiting = asyncio.ensure_future(other.lock(name).acquire(wait=20))
        await auntil(lambda: anyone_waits(client, name))
        await first.release()
        async with await waiting as lease:
            await lease.extend()
        assert [info async for info in client.list()] == []


async def anyone_waits(client: gripfast.AsyncClient, name: str) -> bool:
    info = await client.inspect(name)
    return info is not None and info.waiters > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_lives_its_whole_life_as_that_user(
    server: RedisServer, admin: "redis.Redis", name: str, caplog: pytest.LogCaptureFixture
) -> None:
    live(url_of(server, admin, "gripfast", LOCKS), name, admin)
    assert failures(caplog) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_lives_on_asyncio_as_that_user(server: RedisServer, admin: "redis.Redis", name: str) -> None:
    asyncio.run(alive(url_of(server, admin, "gripfast", LOCKS), name))


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_in_the_shape_of_redis_pys_lives_as_that_user(
    server: RedisServer, admin: "redis.Redis", name: str
) -> None:
    with redis.Redis.from_url(url_of(server, admin, "gripfast", LOCKS)) as client:
        lock = client.lock(f"lock:{name}", timeout=5, lock_class=Lock)
        assert lock.acquire(token="mine")
        assert not client.lock(f"lock:{name}", lock_class=Lock).acquire(blocking=False)
        assert lock.owned()
        assert lock.extend(5)
        lock.release()
        assert not lock.locked()


def test_an_async_lock_in_that_shape_lives_as_that_user(server: RedisServer, admin: "redis.Redis") -> None:
    async def life() -> None:
        async with redis.asyncio.Redis.from_url(url_of(server, admin, "gripfast", LOCKS)) as client:
            async with AsyncLock(client, "lock:nightly", timeout=5) as lock:
                assert await lock.owned()

    asyncio.run(life())


# Nothing too much ----------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("right", [rule for rule in LOCKS if rule.startswith(("+", "~", "&"))])
def test_every_right_is_needed(
    server: RedisServer, admin: "redis.Redis", right: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(server, admin, "less", [rule for rule in LOCKS if rule != right])
    told = ""
    try:
        for name in NAMES:
            live(url, name, admin, patience=1)
    except (gripfast.GripfastError, AssertionError) as error:
        told = str(error)
    assert re.search("user executing the script|no permissions", told + " ".join(failures(caplog)))


@pytest.mark.parametrize(
    ("right", "rest"), [("+select", "/1"), ("+client|setname", "/0?client_name=worker")], ids=["select", "setname"]
)
def test_some_addresses_need_one_right_more(server: RedisServer, admin: "redis.Redis", right: str, rest: str) -> None:
    assert f"`{right}`" in PAGE
    with gripfast.connect(url_of(server, admin, "less", LOCKS, rest)) as client:
        with pytest.raises(gripfast.StoreUnavailable, match="does not let this user"):
            client.lock("nightly").try_acquire()
    with gripfast.connect(url_of(server, admin, "more", [*LOCKS, right], rest)) as client:
        with client.lock("nightly"):
            pass


def test_a_grace_needs_what_the_page_about_replicas_adds(server: RedisServer, admin: "redis.Redis") -> None:
    url = url_of(server, admin, "level", [*LOCKS, *LEVELS], "/0?failover_grace=15")
    assert main(["init", url]) == 0
    with gripfast.connect(url) as client, client.lock("nightly").acquire(wait=5) as lease:
        assert lease.held


@pytest.mark.parametrize("right", LEVELS)
def test_the_error_of_a_grace_names_the_rights_that_it_needs(
    server: RedisServer, admin: "redis.Redis", right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [*LOCKS, *(rule for rule in LEVELS if rule != right)]
    assert main(["init", url_of(server, admin, "less", rules, "/0?failover_grace=15")]) == 69
    allowed = capsys.readouterr().err.partition("Allow ")[2].partition(" to this user")[0]
    assert right in allowed


def test_the_error_of_a_grant_that_may_not_be_acknowledged_names_that_right(
    server: RedisServer, admin: "redis.Redis"
) -> None:
    grace = "/0?failover_grace=15"
    assert main(["init", f"redis://{HOST}:{server.port}{grace}"]) == 0
    rules = [*LOCKS, *(rule for rule in LEVELS if rule != "+wait"), "+role"]
    with gripfast.connect(url_of(server, admin, "less", rules, f"{grace}&replicas=1")) as client:
        with pytest.raises(gripfast.StoreUnavailable, match=r"may not use WAIT: grant it \+wait"):
            client.lock("nightly").try_acquire()


Attempt = Callable[["redis.Redis"], object]
FORBIDDEN: dict[str, Attempt] = {
    "read another key": lambda client: client.get("invoice:7"),
    "write another key": lambda client: client.set("invoice:7", "paid"),
    "remove another key": lambda client: client.delete("locks"),
    "write another key in a script": lambda client: client.eval("return redis.call('SET', 'invoice:7', 'paid')", 0),
    "name another key in a script": lambda client: client.eval("return 1", 1, "invoice:7"),
    "write what looks like a side key": lambda client: client.set("{invoice:7}\0gripfast:token", "1"),
    "publish elsewhere": lambda client: client.publish("news", "x"),
    "publish elsewhere in a script": lambda client: client.eval("return redis.call('PUBLISH', 'news', 'x')", 0),
    "flush": lambda client: client.flushdb(),
    "list by KEYS": lambda client: client.keys(),
    "configure": lambda client: client.config_get("*"),
    "flush scripts": lambda client: client.script_flush(),
    "make users": lambda client: client.acl_setuser("friend"),
    "kill clients": lambda client: client.client_kill("127.0.0.1:1"),
}


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_that_user_can_do_nothing_else(server: RedisServer, admin: "redis.Redis", attempt: Attempt) -> None:
    with redis.Redis.from_url(url_of(server, admin, "gripfast", LOCKS)) as client:
        with pytest.raises(redis.ResponseError, match=r"(?i:no permission)|can't (access|run|publish)"):
            attempt(client)


def test_that_user_can_hear_nothing_else(server: RedisServer, admin: "redis.Redis") -> None:
    with redis.Redis.from_url(url_of(server, admin, "gripfast", LOCKS)) as client, client.pubsub() as heard:
        heard.subscribe("news")
        with pytest.raises(redis.exceptions.NoPermissionError):
            heard.get_message(timeout=5)


def test_locks_of_another_prefix_are_out_of_reach(server: RedisServer, admin: "redis.Redis") -> None:
    url = url_of(server, admin, "gripfast", LOCKS)
    with gripfast.connect(url, prefix="other:") as client:
        with pytest.raises(gripfast.StoreUnavailable, match=r"docs/redis\.md"):
            client.lock("nightly").try_acquire()


# Fenced writes -------------------------------------------------------------------------------------------------------


def fenced(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        seconds, microseconds = client.time()
        token = seconds * 1_000_000 + microseconds
        write(client, "invoice:7", token, ("SET", "invoice:7", "paid"), ("INCR", "invoices:paid"), keep=60)
        with pytest.raises(gripfast.StaleToken):
            write(client, "invoice:7", token - 1, ("SET", "invoice:7", "open"), keep=60)


def test_a_fenced_writer_needs_no_more_than_the_page_says(server: RedisServer, admin: "redis.Redis") -> None:
    fenced(url_of(server, admin, "writer", WRITES))
    assert admin.get("invoice:7") == b"paid"


@pytest.mark.parametrize("right", [rule for rule in WRITES if rule.startswith(("+", "~"))])
def test_a_fenced_writer_needs_every_right(server: RedisServer, admin: "redis.Redis", right: str) -> None:
    with pytest.raises(redis.ResponseError):
        fenced(url_of(server, admin, "less", [rule for rule in WRITES if rule != right]))
    assert admin.get("invoice:7") is None


def test_a_key_that_may_not_be_touched_any_more_keeps_no_other_from_its_release(
    server: RedisServer, admin: "redis.Redis"
) -> None:
    url = url_of(server, admin, "narrowed", LOCKS)
    with gripfast.connect(url, request_timeout=1) as client:
        leases = [client.lock(name, ttl=600).acquire() for name in ("forbidden", "allowed")]
        ledger = client._runtime.env.ledger
        admin.execute_command("ACL", "SETUSER", "narrowed", "resetkeys", "~lock:allowed", "~{lock:allowed}*")
        leases.clear()  # dropped: the watchdog releases them, in one batch
        until(lambda: [mark.name for mark in ledger.marks()] == ["forbidden"])
        assert admin.exists("lock:forbidden")
        assert not admin.exists("lock:allowed")
        admin.execute_command("ACL", "SETUSER", "narrowed", "~*")
        until(lambda: not admin.exists("lock:forbidden"))
