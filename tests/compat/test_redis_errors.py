"""Connection trouble comes out of the lock classes as redis-py's own errors, each chained to Gripfast's."""

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
import redis.cluster
from redis.exceptions import DataError

import gripfast
from compat.redis_kinds import OURS, Kind, new_name
from gripfast.compat.redis import Lock
from gripfast.compat.redis.faults import translated
from support.proxy import Proxy
from support.redis_server import RedisServer, shared_server
from support.waiting import auntil

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
our_kinds = pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.label)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server of this module's own, with users who may little."""
    with RedisServer("--requirepass", "sesame") as server:
        with server.client(password="sesame") as admin:
            admin.acl_setuser("reader", enabled=True, passwords=["+r"], keys=["*"], categories=["+@read"])
        yield server


@pytest.fixture
def name() -> str:
    return new_name()


@contextlib.asynccontextmanager
async def lock_on(kind: Kind, port: int, name: str, timeout: float | None = None, **options: Any) -> AsyncIterator[Any]:
    """Of a client that gives up soon."""
    options = {"socket_timeout": 0.3, "host": "127.0.0.1", "port": port, **options}
    library: Any = redis.asyncio if kind.is_async else redis
    client = library.Redis(**options)
    try:
        yield kind.lock(client, name, timeout=timeout)
    finally:
        await client.aclose() if kind.is_async else client.close()


def raised_from_gripfast(error: BaseException) -> bool:
    return isinstance(error.__cause__, gripfast.StoreUnavailable) and str(error) == str(error.__cause__)


@our_kinds
async def test_a_server_that_is_not_there_is_a_connection_error(kind: Kind, name: str) -> None:
    with RedisServer() as gone:
        gone.stop()
        async with lock_on(kind, gone.port, name) as lock:
            for ask in (lambda: lock.acquire(blocking=False), lambda: lock.acquire(blocking_timeout=0.1), lock.locked):
                with pytest.raises(redis.ConnectionError, match=f"127.0.0.1:{gone.port}") as caught:
                    await ask()
                assert raised_from_gripfast(caught.value)
            assert lock.local.token is None


@our_kinds
async def test_a_block_is_not_entered_without_a_server(kind: Kind, name: str) -> None:
    with RedisServer() as gone:
        gone.stop()
        async with lock_on(kind, gone.port, name) as lock:
            lock.blocking_timeout = 0.1
            with pytest.raises(redis.ConnectionError):
                async with lock:
                    pytest.fail("entered")


@our_kinds
async def test_a_server_that_does_not_answer_is_a_timeout_error(kind: Kind, name: str) -> None:
    with RedisServer() as server:
        async with lock_on(kind, server.port, name, timeout=60) as lock:
            await lock.acquire()
            server.pause()
            for ask in (lock.locked, lock.owned, lambda: lock.extend(1), lock.reacquire):
                with pytest.raises(redis.TimeoutError) as caught:
                    await ask()
                assert raised_from_gripfast(caught.value)
            server.resume()
            await lock.release()


@our_kinds
@pytest.mark.parametrize("password", [None, "wrong"])
async def test_a_wrong_password_is_an_authentication_error(
    kind: Kind, name: str, server: RedisServer, password: str | None
) -> None:
    async with lock_on(kind, server.port, name, password=password) as lock:
        with pytest.raises(redis.AuthenticationError) as caught:
            await lock.acquire(blocking=False)
        assert raised_from_gripfast(caught.value)


@our_kinds
async def test_a_user_who_may_not_lock_is_a_no_permission_error(kind: Kind, name: str, server: RedisServer) -> None:
    async with lock_on(kind, server.port, name, username="reader", password="r") as lock:
        with pytest.raises(redis.exceptions.NoPermissionError) as caught:
            await lock.acquire()
        assert raised_from_gripfast(caught.value)


@our_kinds
async def test_something_else_under_the_name_is_a_response_error(kind: Kind, name: str, server: RedisServer) -> None:
    async with lock_on(kind, server.port, name, password="sesame") as lock:
        with server.client(password="sesame") as admin:
            admin.lpush(name, "not a lock")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE") as caught:
            await lock.acquire()
        assert raised_from_gripfast(caught.value)


@our_kinds
async def test_a_replica_is_a_read_only_error(kind: Kind, name: str) -> None:
    with RedisServer("--replicaof", "127.0.0.1", "1") as replica:
        async with lock_on(kind, replica.port, name) as lock:
            with pytest.raises(redis.ReadOnlyError) as caught:
                await lock.acquire(blocking=False)
            assert raised_from_gripfast(caught.value)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("answered (NOAUTH Authentication required)", redis.AuthenticationError),
        ("is loading (LOADING Redis is loading the dataset in memory)", redis.BusyLoadingError),
        (
            "is out of memory (OOM command not allowed when used memory > 'maxmemory')",
            redis.exceptions.OutOfMemoryError,
        ),
        ("can't save (MISCONF Redis is configured to save RDB snapshots)", redis.ResponseError),
        ("answered with an error: ERR no such thing", redis.ResponseError),
        ("closed the connection before it answered", redis.ConnectionError),
    ],
)
def test_what_a_server_said_decides_the_error(said: str, kind: type[Exception]) -> None:
    assert type(translated(gripfast.StoreUnavailable(f"redis://h:1/0 {said}"))) is kind


@our_kinds
async def test_a_lost_reply_is_asked_for_again(kind: Kind, name: str) -> None:
    """redis-py's lock meets its own key here, says no, and leaves it."""
    with Proxy(("127.0.0.1", shared_server().port)) as proxy, shared_server().client() as admin:
        async with lock_on(kind, proxy.port, name) as lock:
            async with lock:  # the connection is there, and the script is known
                pass
            proxy.drop_reply()
            assert await lock.acquire(blocking=False) is True
            assert admin.get(name) == lock.local.token
            await lock.release()
        assert admin.get(name) is None


@our_kinds
@pytest.mark.parametrize("which", ["claim", "token"])
async def test_a_lost_reply_with_a_token_is_asked_for_again_or_cleaned_up(kind: Kind, name: str, which: str) -> None:
    with Proxy(("127.0.0.1", shared_server().port)) as proxy, shared_server().client() as admin:
        async with lock_on(kind, proxy.port, name, timeout=60) as lock:
            await lock.acquire(token="first")  # all connections are there
            await lock.release()
            proxy.drop_reply(["claim", "token"].index(which) + 1)
            with contextlib.suppress(redis.ConnectionError):
                await lock.acquire(token="second", blocking=False)
                assert admin.get(name) == b"second"
                await lock.release()
            assert not proxy.armed()
            await auntil(lambda: admin.get(name) is None)
            assert lock.local.token is None


@our_kinds
async def test_a_release_whose_reply_was_lost_has_been_done(kind: Kind, name: str) -> None:
    with Proxy(("127.0.0.1", shared_server().port)) as proxy, shared_server().client() as admin:
        async with lock_on(kind, proxy.port, name) as lock:
            await lock.acquire()
            proxy.drop_reply()
            assert await lock.release() is None
            assert not proxy.armed()
            await auntil(lambda: admin.get(name) is None)


@our_kinds
async def test_a_release_that_does_not_arrive_is_repeated_in_the_background(kind: Kind, name: str) -> None:
    with Proxy(("127.0.0.1", shared_server().port)) as proxy, shared_server().client() as admin:
        async with lock_on(kind, proxy.port, name) as lock:
            await lock.acquire()
            proxy.refuse()
            proxy.cut()
            assert await lock.release() is None
            assert lock.local.token is None
            assert admin.get(name) is not None
            proxy.accept()
            await auntil(lambda: admin.get(name) is None)


@our_kinds
async def test_a_release_by_token_that_fails_can_be_repeated(kind: Kind, name: str) -> None:
    with Proxy(("127.0.0.1", shared_server().port)) as proxy, shared_server().client() as admin:
        admin.set(name, "from afar", px=60_000)
        async with lock_on(kind, proxy.port, name) as lock:
            lock.local.token = b"from afar"
            assert await lock.owned()
            proxy.refuse()
            proxy.cut()
            with pytest.raises(redis.ConnectionError):
                await lock.release()
            assert lock.local.token == b"from afar"
            proxy.accept()
            await lock.release()
        assert admin.get(name) is None


def test_a_cluster_is_refused(name: str) -> None:
    cluster = redis.cluster.RedisCluster.__new__(redis.cluster.RedisCluster)  # a real one would want to connect
    with pytest.raises(DataError, match="RedisCluster"):
        Lock(cluster, name)


def test_without_redis_py_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['redis'] = None; import gripfast.compat.redis"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        "ImportError: gripfast.compat.redis needs redis-py: in a clone of Gripfast run pip install '.[redis]'"
        in done.stderr
    )
    assert "once it is published: pip install 'gripfast[redis]'" in done.stderr
