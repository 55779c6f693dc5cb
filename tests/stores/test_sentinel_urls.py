"""What connect() and connect_async() take for Sentinel: URLs, clients of redis-py and valkey-py, options."""

import contextlib
import importlib
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import gripfast
from gripfast import ConfigurationError
from stores.test_redis_urls import CONNECTS, assert_locks
from support.both_colours import both_colours, each, outcome, staged
from support.ports import closed_port
from support.redis_server import HOST, shared_server
from support.sentinel_servers import SERVICE, Watched, shared_watched

PASSWORD, SENTINEL_PASSWORD = "of-the-servers", "of-the-Sentinels"


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CONNECTS[request.param]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Watched]:
    """Servers and Sentinels want passwords, and TLS."""
    with Watched(
        replicas=1, down_after=3600.0, tls=True, password=PASSWORD, sentinel_password=SENTINEL_PASSWORD
    ) as watched:
        yield watched


async def assert_locks_there(target: Any, where: str, **options: Any) -> None:
    """At once: what the levels do after a failover is another matter."""
    await assert_locks(target, where, failover_grace="off", **options)


def hosts(watched: Watched) -> str:
    return ",".join(f"{HOST}:{sentinel.port}" for sentinel in watched.sentinels)


def addresses(watched: Watched) -> list[tuple[str, int]]:
    return [(HOST, sentinel.port) for sentinel in watched.sentinels]


# URLs -----------------------------------------------------------------------------------------------------------------


@staged
async def test_a_url_leads_to_the_primary() -> None:
    watched = shared_watched()
    where = f"redis+sentinel://{hosts(watched)}/{SERVICE}"
    await assert_locks_there(f"{where}?prefix=url:", where)
    await assert_locks_there(f"{where}?db=3&prefix=url:", f"{where}?db=3")


@staged
async def test_one_sentinel_will_do_and_those_that_are_down_do_not_matter() -> None:
    watched = shared_watched()
    for place in range(3):
        names = [f"{HOST}:{closed_port()}" for _ in range(3)]
        names[place] = f"{HOST}:{watched.sentinels[0].port}"
        where = f"redis+sentinel://{','.join(names)}/{SERVICE}"
        await assert_locks_there(f"{where}?prefix=one:", where)


@staged
async def test_tls_and_passwords_for_both(guarded: Watched) -> None:
    where = f"rediss+sentinel://{hosts(guarded)}/{SERVICE}"
    await assert_locks_there(guarded.url, where)
    options = {"password": PASSWORD, "sentinel_password": SENTINEL_PASSWORD, "ssl_ca_certs": str(guarded.certificate)}
    await assert_locks_there(where, where, **options)


@staged
async def test_a_user_of_the_servers_and_one_of_the_sentinels() -> None:
    name, secret = "us,er:@/ö", "p:a/s?s@w#,ö"
    with Watched(replicas=1, down_after=3600.0) as watched:
        for server in (*watched.servers, *watched.sentinels):
            watched.command(server, "ACL", "SETUSER", name, "on", f">{secret}", "allkeys", "allchannels", "+@all")
        login = f"{quote(name, safe='')}:{quote(secret, safe='')}"
        where = f"redis+sentinel://{hosts(watched)}/{SERVICE}"
        query = f"sentinel_username={quote(name)}&sentinel_password={quote(secret)}"
        for server in watched.sentinels:
            watched.command(server, "ACL", "SETUSER", "default", "off")
        await assert_locks_there(f"redis+sentinel://{login}@{hosts(watched)}/{SERVICE}?{query}", where)


@staged
async def test_tls_of_the_servers_alone_and_of_the_sentinels_alone() -> None:
    """No server of these uses TLS: who tries it fails, at the one or at the others."""
    watched, certificate = shared_watched(), "/nowhere.pem"
    plain = f"redis+sentinel://{hosts(watched)}/{SERVICE}?sentinel_ssl=true&sentinel_ssl_ca_certs={certificate}"
    secure = f"rediss+sentinel://{hosts(watched)}/{SERVICE}?sentinel_ssl=false&ssl_cert_reqs=none"
    for url, at in ((plain, "no Sentinel says"), (secure, "/main can't be reached: .*that it speaks TLS")):
        async with both_colours(url) as actors:
            for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
                assert isinstance(told.error, gripfast.StoreUnavailable), told
                assert re.search(at, str(told.error))


def test_what_is_left_out_has_the_usual_value(connect: Callable[..., Any]) -> None:
    assert connect("redis+sentinel://a,b:1,[::1]/main").where == "redis+sentinel://a:26379,b:1,[::1]:26379/main"
    assert connect("REDISS+Sentinel://user:secret@a/my%20own?db=2").where == "rediss+sentinel://a:26379/my own?db=2"
    assert connect("valkey+sentinel://a/main").where == "valkey+sentinel://a:26379/main"


@pytest.mark.parametrize(
    "url, says",
    [
        ("redis+sentinel://host", "name of the service"),
        ("redis+sentinel://host/", "name of the service"),
        ("redis+sentinel://host/main/0", "name of the service"),
        ("redis+sentinel:///main", "can't be read"),
        ("redis+sentinel://a,,b/main", "can't be read"),
        ("redis+sentinel://a:99999/main", "can't be read"),
        ("redis+sentinel://a:x/main", "can't be read"),
        ("redis+sentinel://u:secret@a,u:secret@b/main", "can't be read"),
        ("redis+sentinel://u:sec,ret@a/main", "can't be read"),
        ("redis+sentinel://a/main?db=x", "db can't be 'x'"),
        ("redis+sentinel://a/main?bogus=1", "unknown option for redis.sentinel://a:26379/main: bogus"),
        ("redis+sentinel://a/main?sentinel_bogus=1", "unknown option .* sentinel_bogus"),
        ("redis+sentinel://a/main?sentinel_ssl=maybe", "sentinel_ssl must be true or false"),
        ("redis+sentinel://a/main?ssl_ca_certs=x", "unknown option .* ssl_ca_certs"),
        ("redis+sentinel://a/main?sentinel_pasword=secret", "did you mean sentinel_password"),
        ("sentinel://a/main", r"redis\+sentinel://"),
        ("redis://a,b/0", "one host"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_in_words(connect: Callable[..., Any], url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refusal:
        connect(url)
    assert "secret" not in str(refusal.value)
    assert "sec,ret" not in str(refusal.value)


def test_connecting_does_no_io(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    theirs = redis.sentinel.Sentinel([("host", 1)], password="secret").master_for("main")
    for target in ("redis+sentinel://host/main", "rediss+sentinel://host/main?ssl_ca_certs=/nowhere", theirs):
        client = connect(target)
        client.lock("job")
        assert "host" in repr(client)
        assert "secret" not in repr(client)


def test_a_plain_url_loads_no_redis_py() -> None:
    code = (
        "import sys, gripfast\n"
        f"with gripfast.connect({shared_watched().url_with(prefix='light:', max_ttl='1d')!r}) as client:\n"
        "    client.lock('job').acquire().release()\n"
        "print(*{'redis', 'valkey', 'asyncio', 'ssl'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


# Clients --------------------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("library", ["redis", "valkey"])
@pytest.mark.parametrize("colour", ["", ".asyncio"], ids=["sync", "async"])
@staged
async def test_a_client_of_a_sentinel_will_do_for_either_colour(guarded: Watched, library: str, colour: str) -> None:
    sentinel = importlib.import_module(f"{library}{colour}.sentinel")
    tls = {"ssl": True, "ssl_ca_certs": str(guarded.certificate)}
    manager = sentinel.Sentinel(
        addresses(guarded),
        min_other_sentinels=2,
        sentinel_kwargs={"password": SENTINEL_PASSWORD, **tls},
        password=PASSWORD,
        **tls,
    )
    theirs = manager.master_for(SERVICE, db=2, decode_responses=True)
    await assert_locks_there(theirs, f"{library}s+sentinel://{hosts(guarded)}/{SERVICE}?db=2")


@staged
async def test_what_a_sentinel_of_redis_py_demands_is_demanded() -> None:
    watched = shared_watched()
    few = redis.sentinel.Sentinel(addresses(watched), min_other_sentinels=3).master_for(SERVICE)
    elsewhere = redis.sentinel.Sentinel(addresses(watched), force_master_ip="127.0.0.2").master_for(SERVICE)
    for theirs, says in ((few, "no service 'main'"), (elsewhere, "its primary, 127.0.0.2:")):
        async with both_colours(theirs, request_timeout=0.5) as actors:
            for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
                assert says in str(told.error)


@pytest.mark.parametrize("library", ["redis", "redis.asyncio", "valkey", "valkey.asyncio"])
def test_a_sentinel_alone_names_no_service_and_a_replica_keeps_no_locks(
    connect: Callable[..., Any], library: str
) -> None:
    manager = importlib.import_module(f"{library}.sentinel").Sentinel([("host", 1)])
    with pytest.raises(ConfigurationError, match=re.escape("write connect(sentinel.master_for('service'))")):
        connect(manager)
    with pytest.raises(ConfigurationError, match=re.escape("pass sentinel.master_for(…), not slave_for(…)")):
        connect(manager.slave_for("main"))


def test_redlock_takes_no_service_of_sentinels(connect: Callable[..., Any]) -> None:
    """Its nodes must be independent, and a primary and its replicas are one node."""
    theirs = redis.sentinel.Sentinel([("host", 1)]).master_for("main")
    with pytest.raises(ConfigurationError, match=r"single Redis servers, and redis\+sentinel://host:1/main is not one"):
        connect([theirs, theirs, theirs])
    with pytest.raises(ConfigurationError, match=r"must be a URL with redis://.*not redis\+sentinel://"):
        connect(["redis+sentinel://a/main", "redis://b", "redis://c"])


def test_a_lease_of_a_client_that_knows_the_primary_is_adopted_by_one_that_asks_sentinels() -> None:
    watched = shared_watched()
    with gripfast.connect(watched.primary.url_with(prefix="hand:")) as one:
        text = one.lock("job").acquire().detach()
    with gripfast.connect(watched.url_with(prefix="hand:")) as other, other.adopt(text) as lease:
        assert lease.held


# What is told when nothing works --------------------------------------------------------------------------------------


async def told_by(url: str, **options: Any) -> list[str]:
    async with both_colours(url, **options) as actors:
        answers = await each(actors, lambda actor: outcome(actor.try_acquire("job")))
    assert all(isinstance(told.error, gripfast.StoreUnavailable) for told in answers), answers
    return [str(told.error) for told in answers]


@staged
async def test_no_sentinel_can_be_reached() -> None:
    ports = [closed_port(), closed_port()]
    url = f"redis+sentinel://:secret@{HOST}:{ports[0]},{HOST}:{ports[1]}/main"
    for told in await told_by(url):
        assert told.startswith(url.replace(":secret@", ""))
        assert "no Sentinel says where its primary is" in told
        assert all(f"{HOST}:{port} can't be reached: Connection refused" in told for port in ports)


@staged
async def test_a_service_that_no_sentinel_knows() -> None:
    watched = shared_watched()
    for told in await told_by(f"redis+sentinel://{hosts(watched)}/mian"):
        assert "no service 'mian'" in told
        assert "SENTINEL MASTERS" in told


@staged
async def test_a_service_that_the_only_sentinel_in_reach_does_not_know() -> None:
    """Another one may know it: nobody is told that it is in vain to wait."""
    known = f"{HOST}:{shared_watched().sentinels[0].port}"
    url = f"redis+sentinel://{known},{HOST}:{closed_port()}/mian"
    async with both_colours(url, request_timeout=0.3) as actors:
        for told in await each(actors, lambda actor: outcome(actor.acquire("job", wait=0.5))):
            assert told.seconds > 0.4
            assert f"{known} knows no service 'mian'" in str(told.error)
            assert "Connection refused" in str(told.error)


@staged
async def test_a_server_that_is_no_sentinel() -> None:
    for told in await told_by(f"redis+sentinel://{HOST}:{shared_server().port}/main"):
        assert "is no Sentinel: use the addresses of Sentinels, whose usual port is 26379" in told


@pytest.mark.parametrize("password", ["", "&sentinel_password=wrong-secret"], ids=["none", "wrong"])
@staged
async def test_sentinels_that_want_a_password(guarded: Watched, password: str) -> None:
    url = f"rediss+sentinel://:{PASSWORD}@{hosts(guarded)}/{SERVICE}?ssl_ca_certs={guarded.certificate}{password}"
    for told in await told_by(url):
        assert "set sentinel_password" in told
        assert PASSWORD not in told
        assert "wrong-secret" not in told


@staged
async def test_a_primary_that_wants_a_password(guarded: Watched) -> None:
    query = f"ssl_ca_certs={guarded.certificate}&sentinel_password={SENTINEL_PASSWORD}"
    for told in await told_by(f"rediss+sentinel://{hosts(guarded)}/{SERVICE}?{query}"):
        assert f"its primary, {HOST}:{guarded.primary.port} wants a password" in told
        assert "CKQUORUM" not in told
        assert SENTINEL_PASSWORD not in told


@staged
async def test_a_user_who_may_not_ask_for_the_role() -> None:
    with Watched(replicas=0, down_after=3600.0) as watched:
        watched.command(watched.primary, "ACL", "SETUSER", "default", "-role")
        for told in await told_by(watched.url):
            assert "grant it +role" in told


@contextlib.contextmanager
def hanging() -> Iterator[int]:
    """A port where connections are made, and nobody says anything."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


@staged
async def test_sentinels_that_hang_take_a_moment_and_no_more() -> None:
    watched = shared_watched()
    with hanging() as first, hanging() as second:
        names = f"{HOST}:{first},{HOST}:{second},{HOST}:{watched.sentinels[0].port}"
        async with both_colours(f"redis+sentinel://{names}/{SERVICE}?prefix=slow:&failover_grace=off") as actors:
            for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
                assert told.error is None
                assert 0.4 < told.seconds < 4.0
        for told in await told_by(f"redis+sentinel://{HOST}:{first},{HOST}:{second}/{SERVICE}", request_timeout=1.5):
            assert re.search(
                f"{HOST}:{first} (did not answer|can't be reached: the connection was not made) in time", told
            )


@pytest.mark.parametrize("url", ["redis+sentinel://a,b,c/main", "redis+cluster://a,b,c"])
def test_once_needs_replicas_that_acknowledge(url: str) -> None:
    """A failover could forget what is done."""
    with gripfast.connect(url) as client:
        assert not client.capabilities.once
        with pytest.raises(ConfigurationError, match="needs replicas=N"):
            client.once("digest", keep=60)
        client.lock("job", min_hold=5)
    with gripfast.connect(f"{url}?replicas=2") as client:
        assert client.capabilities.once
        client.once("digest", keep=60)
