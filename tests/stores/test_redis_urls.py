"""What connect() and connect_async() take for a Redis server: URLs, clients of redis-py of either colour, options."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import redis.sentinel

import gripfast
from gripfast import ConfigurationError
from support.both_colours import both_colours, each, outcome, staged
from support.redis_server import RedisServer, shared_server

CONNECTS: dict[str, Callable[..., Any]] = {"connect": gripfast.connect, "connect_async": gripfast.connect_async}
USER = "us:e/r@%2F+ö"
PASSWORD = "p:a/s?s@w#o rd%2F+ö[]"
LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CONNECTS[request.param]


@pytest.fixture
def users() -> Iterator[RedisServer]:
    """A server with a user whose name and password need care in a URL."""
    with RedisServer() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "allkeys", "allchannels", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off")
        yield server


async def assert_locks(target: Any, where: str, **options: Any) -> None:
    """Both colours lock there, exclude each other and hand over: commands and pushes work."""
    async with both_colours(target, **options) as actors:
        first, second = actors
        assert [actor.client.where for actor in actors] == [where, where]
        lease = await first.acquire("job")
        assert await second.try_acquire("job") is None
        waiting = second.acquire("job")
        assert await first.does(lambda: lease.held)
        await first.release(lease)
        next_one = await waiting
        assert next_one.token > lease.token
        await second.release(next_one)
        assert await each(actors, lambda actor: actor.inspect("job")) == [None, None]


# URLs -----------------------------------------------------------------------------------------------------------------


@staged
async def test_a_plain_url() -> None:
    server = shared_server()
    await assert_locks(f"redis://127.0.0.1:{server.port}?prefix=plain:", f"redis://127.0.0.1:{server.port}/0")


@pytest.mark.parametrize("rest, number", [("/3?ttl=9", 3), ("?db=4", 4), ("/5?db=6", 6)])
@staged
async def test_a_database_is_a_lock_space_of_its_own(rest: str, number: int) -> None:
    port = shared_server().port
    url = f"redis://127.0.0.1:{port}{rest}&prefix=db:"
    await assert_locks(url, f"redis://127.0.0.1:{port}/{number}")
    async with both_colours(url) as actors:
        await each(actors, lambda actor: actor.acquire(actor.colour))
        with redis.Redis("127.0.0.1", port, db=number) as client:
            assert client.exists("db:blocking", "db:asyncio") == 2


@staged
async def test_user_and_password_of_strange_characters(users: RedisServer) -> None:
    where = f"redis://127.0.0.1:{users.port}/0"
    await assert_locks(f"redis://{LOGIN}@127.0.0.1:{users.port}/0", where)
    await assert_locks(f"redis://127.0.0.1:{users.port}/0?username={quote(USER)}&password={quote(PASSWORD)}", where)
    await assert_locks(where, where, username=USER, password=PASSWORD)


@staged
async def test_a_password_without_a_user() -> None:
    with RedisServer("--requirepass", PASSWORD) as server:
        where = f"redis://127.0.0.1:{server.port}/0"
        await assert_locks(f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}", where)


@staged
async def test_tls() -> None:
    with RedisServer(tls=True) as server:
        await assert_locks(server.url, f"rediss://127.0.0.1:{server.port}/0")
        authority = server.url.partition("ssl_ca_certs=")[2]
        with redis.Redis("127.0.0.1", server.port, ssl=True, ssl_ca_certs=authority) as client:
            await assert_locks(client, f"rediss://127.0.0.1:{server.port}/0")
        client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, ssl=True, ssl_ca_certs=authority)
        await assert_locks(client, f"rediss://127.0.0.1:{server.port}/0")


@staged
async def test_a_unix_socket() -> None:
    with RedisServer(unix=True) as server:
        path = server.folder / "socket"
        await assert_locks(f"unix://{path}", f"unix://{path}")
        await assert_locks(f"unix://{path}?db=2&prefix=x:", f"unix://{path}")
        with redis.Redis(unix_socket_path=str(path)) as client:
            await assert_locks(client, f"unix://{path}")
        await assert_locks(redis.asyncio.Redis(unix_socket_path=str(path)), f"unix://{path}")


@staged
async def test_an_ipv6_address() -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        with RedisServer("--bind", "127.0.0.1", "::1") as server:
            await assert_locks(f"redis://[::1]:{server.port}/0", f"redis://[::1]:{server.port}/0")
        return
    pytest.skip("this system has no ::1")


def test_what_is_left_out_has_the_usual_value(connect: Callable[..., Any]) -> None:
    assert connect("redis://").where == "redis://localhost:6379/0"
    assert connect("redis://host").where == "redis://host:6379/0"
    assert connect("rediss://host/2").where == "rediss://host:6379/2"


@pytest.mark.parametrize(
    "url, says",
    [
        ("redis://host/jobs", "number of a database"),
        ("redis://host/-1", "number of a database"),
        ("redis://host/1/2", "number of a database"),
        ("redis://host?db=jobs", "db"),
        ("redis://host:port", "port"),
        ("redis://host?socket_timeout=soon", "socket_timeout"),
        ("redis://host?ttl=soon", "ttl"),
        ("redis://host?ttl=0", "ttl"),
        ("redis://host?bogus=1", "bogus"),
        ("redis://host?path=/run/redis.sock", "path"),
        ("redis://host?ssl_ca_certs=ca.pem", "ssl_ca_certs"),
        ("unix:///run/redis.sock?ssl_ca_certs=ca.pem", "ssl_ca_certs"),
        ("unix:///run/redis.sock?host=other", "host"),
        ("unix://redis.sock", "three slashes"),
        ("unix://", "three slashes"),
        ("redis+unix:///run/redis.sock", "unix://"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_in_words(connect: Callable[..., Any], url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        connect(url)


@pytest.mark.parametrize("number", [-1, float("nan")])
@pytest.mark.parametrize("option", ["socket_timeout", "socket_connect_timeout"])
def test_a_time_out_that_is_none_is_refused(connect: Callable[..., Any], option: str, number: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        connect("redis://host", **{option: number})


@pytest.mark.parametrize(
    "url",
    [
        "redis://:12/34secret@host",
        "redis://user:1?secret@host/0",
        "redis://user:1/secret:2@host:6379/0",
        "redis://user:secret[@host/x",
        "redis://user:secret@host:x/0",
        "redis://user:secret#1@host/0",
    ],
)
def test_a_password_that_was_not_quoted_is_not_told_either(connect: Callable[..., Any], url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        connect(url)
    assert "secret" not in str(refusal.value)


# Options --------------------------------------------------------------------------------------------------------------


@staged
async def test_options_of_the_driver_reach_the_connection() -> None:
    server = shared_server()
    for target, options in (
        (server.url_with(prefix="named:", client_name="worker-7", socket_keepalive="true"), {}),
        (server.url, {"prefix": "named:", "client_name": "worker-7", "socket_keepalive": True}),
    ):
        async with both_colours(target, **options) as actors:
            await each(actors, lambda actor: actor.acquire(actor.colour))
            with server.client() as client:
                names = [each["name"] for each in client.client_list()]
        assert names.count("worker-7") == 2


@staged
async def test_the_shorter_of_the_two_time_outs_counts() -> None:
    with RedisServer() as server:
        async with both_colours(server.url, socket_timeout=0.2) as actors:
            await each(actors, lambda actor: actor.inspect("job"))
            server.pause()
            for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
                assert isinstance(told.error, gripfast.StoreUnavailable)
                assert "within 0.2 s" in str(told.error)
            server.resume()


@staged
async def test_options_about_commands_and_replies_are_accepted_and_change_nothing() -> None:
    """A URL that redis-py takes is good enough."""
    server = shared_server()
    options = "decode_responses=true&max_connections=1&health_check_interval=3&retry_on_timeout=yes&protocol=3"
    url = server.url_with(prefix="ignored:") + f"&{options}&encoding=latin-1"
    await assert_locks(url, f"redis://127.0.0.1:{server.port}/0")


def test_all_that_is_unknown_is_named(connect: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="unknown option for redis://host:6379/0: bogus, other"):
        connect("redis://user:secret@host?other=1", bogus=2)
    with pytest.raises(ConfigurationError, match="unknown option for redis://localhost:6379/0: bogus"):
        connect(redis.Redis(password="secret"), bogus=2)


def test_connecting_does_no_io(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for target in ("redis://host", "rediss://host?ssl_ca_certs=/nowhere", "unix:///nowhere", redis.Redis("host")):
        client = connect(target)
        client.lock("job")
        assert "host" in repr(client) or "nowhere" in repr(client)


# Clients of redis-py --------------------------------------------------------------------------------------------------


class Login(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        return USER, PASSWORD


CLIENTS: dict[str, Callable[[int], Any]] = {
    "Redis": lambda port: redis.Redis("127.0.0.1", port, username=USER, password=PASSWORD),
    "decoding": lambda port: redis.Redis(
        "127.0.0.1", port, username=USER, password=PASSWORD, decode_responses=True, encoding="latin-1"
    ),
    "from_url": lambda port: redis.Redis.from_url(f"redis://{LOGIN}@127.0.0.1:{port}/0?max_connections=1"),
    "RESP3": lambda port: redis.Redis("127.0.0.1", port, username=USER, password=PASSWORD, protocol=3),
    "credential provider": lambda port: redis.Redis("127.0.0.1", port, credential_provider=Login()),
    "blocking pool": lambda port: redis.Redis(
        connection_pool=redis.BlockingConnectionPool(
            max_connections=1, host="127.0.0.1", port=port, username=USER, password=PASSWORD
        )
    ),
    "single connection": lambda port: redis.Redis(
        "127.0.0.1", port, credential_provider=Login(), single_connection_client=True
    ),
    "asyncio": lambda port: redis.asyncio.Redis(host="127.0.0.1", port=port, username=USER, password=PASSWORD),
    "asyncio, from_url": lambda port: redis.asyncio.Redis.from_url(
        f"redis://{LOGIN}@127.0.0.1:{port}/0", decode_responses=True
    ),
    "asyncio, credential provider": lambda port: redis.asyncio.Redis(
        host="127.0.0.1", port=port, credential_provider=Login()
    ),
    "asyncio, blocking pool": lambda port: redis.asyncio.Redis(
        connection_pool=redis.asyncio.BlockingConnectionPool(
            max_connections=1, host="127.0.0.1", port=port, username=USER, password=PASSWORD
        )
    ),
    "asyncio, single connection": lambda port: redis.asyncio.Redis(
        host="127.0.0.1", port=port, credential_provider=Login(), single_connection_client=True
    ),
}


@staged
async def test_a_client_of_either_colour_will_do_for_either_colour(users: RedisServer) -> None:
    for make in CLIENTS.values():
        theirs = make(users.port)
        await assert_locks(theirs, f"redis://127.0.0.1:{users.port}/0")
        await assert_locks(theirs, f"redis://127.0.0.1:{users.port}/0", prefix="p:", ttl=5, request_timeout=3)
        closing = theirs.aclose() if hasattr(theirs, "aclose") else theirs.close()
        if closing is not None:
            await closing


def test_their_client_keeps_working_and_lends_no_connection(users: RedisServer) -> None:
    with redis.Redis("127.0.0.1", users.port, credential_provider=Login(), max_connections=1) as theirs:
        theirs.ping()
        with gripfast.connect(theirs) as client:
            with client.lock("job"):
                assert theirs.get("lock:job")
        assert theirs.ping()


def test_our_client_outlives_theirs(users: RedisServer) -> None:
    theirs = redis.Redis("127.0.0.1", users.port, credential_provider=Login())
    with gripfast.connect(theirs) as client:
        theirs.close()
        del theirs
        with client.lock("job") as lease:
            assert lease.held


def by_a_pool_that_finds_its_server() -> redis.Redis:
    pool = redis.ConnectionPool(connection_class=redis.sentinel.SentinelManagedConnection)
    pool.connection_kwargs["connection_pool"] = pool
    return redis.Redis(connection_pool=pool)


@pytest.mark.parametrize(
    "make",
    [
        lambda: redis.ConnectionPool(),
        lambda: redis.Redis,
        lambda: redis.sentinel.Sentinel([("host", 1)]),
        lambda: by_a_pool_that_finds_its_server(),
        lambda: object(),
        lambda: b"redis://host",
    ],
    ids=[
        "pool",
        "class",
        "sentinel",
        "by a pool of its own",
        "any",
        "bytes",
    ],
)
def test_what_is_no_client_of_one_server_is_refused(connect: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Above all, nobody locks at localhost because a client's real address is to be found elsewhere."""
    with pytest.raises(ConfigurationError, match=r"(?i)redis|sentinel"):
        connect(make())


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_pool_that_leaves_out_its_host_means_this_machine(connect: Callable[..., Any]) -> None:
    with redis.Redis(connection_pool=redis.ConnectionPool(port=1234)) as theirs:
        assert connect(theirs).where == "redis://localhost:1234/0"


class Moody(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        raise LookupError("the vault is closed")


@staged
async def test_a_credential_provider_that_fails_is_an_error_not_a_hang() -> None:
    server = shared_server()
    options = {"credential_provider": Moody(), "request_timeout": 0.2}
    async with both_colours(server.url, **options) as actors:
        for told in await each(actors, lambda actor: outcome(actor.try_acquire("job"))):
            assert isinstance(told.error, gripfast.StoreUnavailable), told
            assert "the vault is closed" in str(told.error)


# Without redis-py -----------------------------------------------------------------------------------------------------

WITHOUT = """
import importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import gripfast

told = []
for connect in (gripfast.connect, gripfast.connect_async):
    for url in ("redis://host", "rediss://host", "unix:///host"):
        try:
            connect(url)
        except gripfast.ConfigurationError as error:
            told.append(str(error))
gripfast.connect("memory://").lock("job").acquire().release()
print(json.dumps(told))
"""


@pytest.mark.parametrize(("package", "errors"), [("redis", 2), ("hiredis", 6)], ids=["redis", "hiredis"])
def test_without_the_package_the_error_has_the_line_that_installs_it(package: str, errors: int) -> None:
    """redis-py is needed for TLS; the other two kinds of URL do without it, sync and async."""
    run = subprocess.run([sys.executable, "-c", WITHOUT, package], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert len(told) == errors
    for line in (package, "pip install 'gripfast[redis]'", "in a clone of Gripfast run pip install '.[redis]'"):
        assert all(line in message for message in told), told


def test_importing_gripfast_imports_no_driver() -> None:
    line = "import sys, gripfast; print([name for name in ('redis', 'hiredis') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=30)
    assert run.stdout.strip() == "[]", run.stderr


def test_an_asyncio_client_can_be_made_before_there_is_a_loop() -> None:
    client = gripfast.connect_async(shared_server().url_with(prefix="early:"))

    async def use() -> None:
        async with client, client.lock("job") as lease:
            assert lease.held

    asyncio.run(use())
