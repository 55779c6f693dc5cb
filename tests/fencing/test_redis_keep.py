"""Fences that may be forgotten: the memory goes, and yet nobody stale gets in."""

import math
from collections.abc import Iterator

import pytest
import redis

from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import write
from support.redis_server import RedisServer
from support.waiting import until

MINUTE_US = 60_000_000
BRIEF = 0.03


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


def now_us(client: "redis.Redis") -> int:
    """A token, as a lock that is granted now would carry it."""
    seconds, microseconds = client.time()
    return int(seconds) * 1_000_000 + int(microseconds)


def until_forgotten(client: "redis.Redis") -> None:
    until(lambda: client.exists("fence:stock") == 0)


def test_a_fence_is_remembered_for_ever_unless_told_otherwise(client: "redis.Redis") -> None:
    write(client, "stock", now_us(client))
    assert client.pttl("fence:stock") == -1


def test_a_fence_goes_that_long_after_the_last_write(client: "redis.Redis") -> None:
    token = now_us(client)
    write(client, "stock", token, keep=100)
    assert 90_000 < client.pttl("fence:stock") <= 100_001
    write(client, "stock", token, keep=200)
    assert 190_000 < client.pttl("fence:stock") <= 200_001
    write(client, "stock", token)
    assert client.pttl("fence:stock") == -1


def test_who_was_overtaken_stays_out_when_the_fence_is_forgotten(client: "redis.Redis") -> None:
    older = now_us(client)
    newer = now_us(client)
    write(client, "stock", newer, ("SET", "amount", "90"), keep=BRIEF)
    until_forgotten(client)
    for late in (older, newer - 1):
        with pytest.raises(StaleToken) as refusal:
            write(client, "stock", late, ("SET", "amount", "101"), keep=BRIEF)
        assert newer <= refusal.value.seen <= now_us(client) - BRIEF * 1_000_000
    assert (client.get("amount"), client.exists("fence:stock")) == ("90", 0)


def test_a_new_holder_gets_in_when_the_fence_is_forgotten(client: "redis.Redis") -> None:
    soon = now_us(client) + 500_000  # not older than `keep` when it arrives, however busy the machine is
    write(client, "stock", soon, ("INCR", "writes"), keep=BRIEF)
    until_forgotten(client)
    assert write(client, "stock", now_us(client), ("INCR", "writes"), keep=60) == [2]


def test_less_than_a_millisecond_is_a_time_too(client: "redis.Redis") -> None:
    write(client, "stock", now_us(client) + 1_000_000, keep=0.0001)
    until_forgotten(client)


def test_without_a_fence_only_tokens_older_than_keep_are_refused(client: "redis.Redis") -> None:
    write(client, "first", now_us(client) - MINUTE_US + 10_000_000, keep=60)
    with pytest.raises(StaleToken):
        write(client, "second", now_us(client) - MINUTE_US - 1, keep=60)


def test_with_a_fence_the_age_of_a_token_does_not_matter(client: "redis.Redis") -> None:
    old = now_us(client) - 2 * MINUTE_US
    write(client, "stock", old)
    write(client, "stock", old, keep=60)


def test_a_token_ahead_of_the_servers_clock_is_remembered_until_its_time_has_come(client: "redis.Redis") -> None:
    """Otherwise an older token that is ahead of the clock, too, would get in once the fence is gone."""
    ahead = now_us(client) + 10 * MINUTE_US
    write(client, "stock", ahead, keep=60)
    assert client.pttl("fence:stock") > 10 * 60_000
    with pytest.raises(StaleToken):
        write(client, "stock", ahead - 1, keep=60)


@pytest.mark.parametrize("token", [2**53 - 1, 2**53 + 1, 2**63 - 2])
def test_the_largest_tokens_may_be_kept_for_a_time_too(client: "redis.Redis", token: int) -> None:
    write(client, "stock", token, keep=0.001)
    with pytest.raises(StaleToken):
        write(client, "stock", token - 1, keep=0.001)


@pytest.mark.parametrize("keep", [0, -1, math.nan, math.inf, 4e9, True, "60"])
def test_a_keep_that_is_no_time_is_refused(client: "redis.Redis", keep: float) -> None:
    with pytest.raises(ConfigurationError, match="keep must be None or a number of seconds"):
        write(client, "stock", now_us(client), keep=keep)


def test_tokens_that_are_no_times_must_be_kept_for_ever(client: "redis.Redis") -> None:
    with pytest.raises(ConfigurationError, match="those of ZooKeeper and etcd are not"):
        write(client, "stock", 0x500000007, keep=60)
