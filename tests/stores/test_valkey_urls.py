"""What connect() and connect_async() take for Valkey: URLs, clients of valkey-py of either colour, Sentinel."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import valkey
import valkey.asyncio
import valkey.sentinel

import gripfast
from gripfast import ConfigurationError
from stores.test_redis_urls import CONNECTS, LOGIN, PASSWORD, USER, WITHOUT, assert_locks
from support.both_colours import both_colours, each, outcome, staged
from support.certificates import certificate
from support.redis_server import HOST, RedisServer, shared_server
from support.sentinel_servers import SERVICE, Watched
from support.tls_front import TlsFront
from support.valkey_server import ValkeyServer
from support.waiting import auntil

SECRET = "of-the-Valkey"


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CONNECTS[request.param]


@pytest.fixture(scope="module")
def users() -> Iterator[RedisServer]:
    """A Valkey with a user whose name and password need care in a URL."""
    with ValkeyServer() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "allkeys", "allchannels", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off")
        yield server


def test_the_server_of_these_tests_is_a_valkey() -> None:
    with shared_server(ValkeyServer).client() as client:
        assert client.info("server")["server_name"] == "valkey"


# URLs -----------------------------------------------------------------------------------------------------------------


@staged
async def test_a_plain_url() -> None:
    port = shared_server(ValkeyServer).port
    await assert_locks(f"valkey://{HOST}:{port}?prefix=plain:", f"valkey://{HOST}:{port}/0")
    await assert_locks(f"valkey://{HOST}:{port}/3?prefix=plain:", f"valkey://{HOST}:{port}/3")


@staged
async def test_a_redis_url_leads_to_the_same_locks() -> None:
    """One may change the scheme, one program after the other."""
    port = shared_server(ValkeyServer).port
    async with both_colours(f"redis://{HOST}:{port}?prefix=both:") as before:
        async with both_colours(f"valkey://{HOST}:{port}?prefix=both:") as after:
            lease = await before[0].acquire("job")
            assert await each(after, lambda actor: actor.try_acquire("job")) == [None, None]
            await before[0].release(lease)


@staged
async def test_user_and_password_of_strange_characters(users: RedisServer) -> None:
    where = f"valkey://{HOST}:{users.port}/0"
    await assert_locks(f"valkey://{LOGIN}@{HOST}:{users.port}/0", where)
    await assert_locks(where, where, username=USER, password=PASSWORD)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Path) -> Iterator[int]:
    """The port of a Valkey that wants a password, and TLS. It knows none itself."""
    with ValkeyServer("--requirepass", SECRET) as server, TlsFront(server.port, authority) as front:
        yield front.port


@staged
async def test_tls_and_a_password(secured: int, authority: Path) -> None:
    where = f"valkeys://{HOST}:{secured}/0"
    await assert_locks(f"valkeys://:{SECRET}@{HOST}:{secured}/0?ssl_ca_certs={authority}", where)
    settings: dict[str, Any] = {"password": SECRET, "ssl_ca_certs": str(authority)}
    await assert_locks(where, where, **settings)
    with valkey.Valkey(HOST, secured, ssl=True, **settings) as client:
        await assert_locks(client, where)
    theirs = valkey.asyncio.Valkey(host=HOST, port=secured, ssl=True, **settings)
    await assert_locks(theirs, where)


@staged
async def test_a_certificate_of_another_authority_and_a_wrong_password_are_refused(
    secured: int, authority: Path, tmp_path: Path
) -> None:
    stranger, guess = (SECRET, certificate(tmp_path)), ("guessed", authority)
    for (password, trusted), says in (
        (stranger, "certificate verify failed.*check the certificates"),
        (guess, "WRONGPASS"),
    ):
        url = f"valkeys://:{password}@{HOST}:{secured}/0?ssl_ca_certs={trusted}&request_timeout=5"
        async with both_colours(url) as actors:
            for told in await each(actors, lambda actor: outcome(actor.try_acquire("job"))):
                assert isinstance(told.error, gripfast.GripfastError)
                assert re.search(says, str(told.error))
                assert password not in str(told.error)


@staged
async def test_a_certificate_of_another_host_is_refused() -> None:
    with RedisServer(tls=True, certified_for="DNS:other.example") as server:
        async with both_colours(server.url.replace("rediss", "valkeys")) as actors:
            for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
                assert "its certificate is not valid for '127.0.0.1'" in str(told.error)


@staged
async def test_a_unix_socket() -> None:
    with ValkeyServer(unix=True) as server:
        path = server.folder / "socket"
        await assert_locks(f"unix://{path}", f"unix://{path}")
        with valkey.Valkey(unix_socket_path=str(path)) as client:
            await assert_locks(client, f"unix://{path}")


@staged
async def test_options_of_the_driver_reach_the_connection() -> None:
    server = shared_server(ValkeyServer)
    url = server.url_with(prefix="named:", client_name="worker-8", socket_keepalive="true", protocol=3)
    async with both_colours(url) as actors:
        await each(actors, lambda actor: actor.acquire(actor.colour))
        with server.client() as client:
            names = [each["name"] for each in client.client_list()]
    assert names.count("worker-8") == 2


def test_what_is_unknown_is_named(connect: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="unknown option for valkey://host:6379/0: bogus"):
        connect("valkey://user:secret@host?bogus=1")
    with pytest.raises(ConfigurationError, match="unknown option for valkey://localhost:6379/0: bogus"):
        connect(valkey.Valkey(password="secret"), bogus=2)


def test_a_plain_url_loads_no_client_library() -> None:
    code = (
        "import sys, gripfast\n"
        f"with gripfast.connect({shared_server(ValkeyServer).url_with(prefix='light:')!r}) as client:\n"
        "    client.lock('job').acquire().release()\n"
        "print(*{'redis', 'valkey'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


@pytest.mark.parametrize(("package", "errors"), [("valkey", 2), ("redis", 0), ("hiredis", 4)])
def test_without_the_package_the_error_has_the_line_that_installs_it(package: str, errors: int) -> None:
    """valkey-py is needed for TLS, and redis-py for nothing here."""
    code = WITHOUT.replace('"redis://host", "rediss://host", "unix:///host"', '"valkey://host", "valkeys://host"')
    assert code != WITHOUT
    run = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert len(told) == errors
    assert all(package in message and "pip install 'gripfast[valkey]'" in message for message in told), told


# Clients of valkey-py -------------------------------------------------------------------------------------------------


class Login(valkey.CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        return USER, PASSWORD


class Mine(valkey.Valkey):
    """A class of the caller's own."""


CLIENTS: dict[str, Callable[[int], Any]] = {
    "Valkey": lambda port: valkey.Valkey(HOST, port, username=USER, password=PASSWORD),
    "decoding": lambda port: valkey.Valkey(HOST, port, username=USER, password=PASSWORD, decode_responses=True),
    "from_url": lambda port: valkey.from_url(f"valkey://{LOGIN}@{HOST}:{port}/0"),
    "RESP3": lambda port: valkey.Valkey(HOST, port, username=USER, password=PASSWORD, protocol=3),
    "credential provider": lambda port: Mine(HOST, port, credential_provider=Login()),
    "blocking pool": lambda port: valkey.Valkey(
        connection_pool=valkey.BlockingConnectionPool(host=HOST, port=port, username=USER, password=PASSWORD)
    ),
    "asyncio": lambda port: valkey.asyncio.Valkey(host=HOST, port=port, username=USER, password=PASSWORD),
    "asyncio, credential provider": lambda port: valkey.asyncio.Valkey(
        host=HOST, port=port, credential_provider=Login()
    ),
}


@staged
async def test_a_client_of_either_colour_will_do_for_either_colour(users: RedisServer) -> None:
    for make in CLIENTS.values():
        theirs = make(users.port)
        await assert_locks(theirs, f"valkey://{HOST}:{users.port}/0")
        closing = theirs.aclose() if hasattr(theirs, "aclose") else theirs.close()
        if closing is not None:
            await closing


def test_redlock_takes_servers_and_clients_of_both_kinds(connect: Callable[..., Any]) -> None:
    client = connect([valkey.Valkey("a"), "valkey://b", "redis://c"])
    assert client.where == "Redlock on valkey://a:6379/0, valkey://b:6379/0, redis://c:6379/0"
    with pytest.raises(ConfigurationError, match="occurs twice"):
        connect(["redis://a", "valkey://a", "valkey://b"])


@pytest.mark.parametrize("make", [valkey.ConnectionPool, lambda: valkey.Valkey], ids=["pool", "class"])
def test_what_is_no_client_of_one_server_is_refused(connect: Callable[..., Any], make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"valkey\.client\.Valkey"):
        connect(make())


# Sentinel -------------------------------------------------------------------------------------------------------------


@staged
async def test_sentinels_of_valkey_lead_to_its_primary_also_after_a_failover() -> None:
    with Watched(replicas=1, kind=ValkeyServer) as watched:
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in watched.sentinels)
        where = f"valkey+sentinel://{hosts}/{SERVICE}"
        await assert_locks(watched.url, where)
        manager = valkey.sentinel.Sentinel([(HOST, sentinel.port) for sentinel in watched.sentinels])
        await assert_locks(manager.master_for(SERVICE), where, failover_grace="off")
        async with both_colours(watched.url) as actors:
            leases = await each(actors, lambda actor: actor.acquire(actor.colour, ttl=60))
            old = watched.primary
            with watched.client(old) as client:
                client.set("filler", "")
                assert client.wait(1, 10_000) == 1
            old.kill()
            again = await each(actors, lambda actor: actor.acquire(f"{actor.colour} again", wait=30))
            assert all(lease.held for lease in (*leases, *again))
            await auntil(lambda: watched.primary is not old)  # of the Sentinels, not all know it yet


def test_a_lease_is_handed_over_between_clients_of_a_valkey() -> None:
    with gripfast.connect(shared_server(ValkeyServer).url_with(prefix="hand:")) as client:
        text = client.lock("job").acquire().detach()
        with client.adopt(text) as lease:
            assert lease.held
