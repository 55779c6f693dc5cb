"""Whose certificate a server may show: its own host's, whatever redis-py's own idea of that is."""

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import gripfast
from gripfast.stores.redis import factory
from gripfast.stores.redis.driver import driver as driver_for
from support.both_colours import both_colours, each, outcome, staged
from support.redis_server import HOST, RedisServer

HOSTS = (HOST, "127.0.0.2", "127.0.0.3")


class AsBefore(redis.SSLConnection):
    """Until 6.0, redis-py did not look at the name unless it was told to."""

    def __init__(self, ssl_check_hostname: bool = False, **settings: Any) -> None:
        super().__init__(ssl_check_hostname=ssl_check_hostname, **settings)


@pytest.fixture(params=[redis.SSLConnection, AsBefore], ids=["this redis-py", "an old redis-py"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver_for("redis").kinds, "rediss", request.param)


@pytest.fixture(scope="module")
def stranger() -> Iterator[RedisServer]:
    """Its certificate is of a trusted authority, but for another host."""
    with RedisServer("--bind", *HOSTS, tls=True, certified_for="DNS:other.example") as server:
        yield server


@staged
async def test_a_certificate_of_another_host_is_refused_and_it_is_said_what_to_do(
    stranger: RedisServer, driver: None
) -> None:
    async with both_colours(stranger.url_with(request_timeout=5)) as actors:
        for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
            assert isinstance(told.error, gripfast.StoreUnavailable)
            assert "its certificate is not valid for '127.0.0.1'" in str(told.error)
            assert "ssl_check_hostname=false" in str(told.error)


@staged
async def test_so_it_is_by_the_nodes_of_redlock(stranger: RedisServer, driver: None) -> None:
    nodes = ",".join(f"{host}:{stranger.port}" for host in HOSTS)
    url = f"redlocks://{nodes}/0?ssl_ca_certs={stranger.folder}/server.crt&request_timeout=5"
    async with both_colours(url) as actors:
        for told in await each(actors, lambda actor: outcome(actor.inspect("job"))):
            assert isinstance(told.error, gripfast.StoreUnavailable)
            assert "its certificate is not valid for" in str(told.error)


@pytest.mark.parametrize("trust", [{"ssl_check_hostname": "false"}, {"ssl_cert_reqs": "none"}], ids=["name", "any"])
@staged
async def test_a_caller_who_says_so_accepts_it(stranger: RedisServer, driver: None, trust: dict[str, str]) -> None:
    async with both_colours(stranger.url_with(**trust)) as actors:
        for lease in await each(actors, lambda actor: actor.acquire(actor.colour)):
            assert lease.held


def test_what_a_client_of_redis_py_was_told_stands() -> None:
    with redis.Redis(HOST, 1, ssl=True, ssl_check_hostname=False, ssl_cert_reqs=ssl.CERT_REQUIRED) as theirs:
        made = factory.factory_of(theirs, {})
    assert made._settings["ssl_check_hostname"] is False
