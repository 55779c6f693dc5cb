"""Bad arguments are the caller's to fix: refused at once, by ConfigurationError, before any I/O, with advice."""

from collections.abc import Callable
from typing import Any

import pytest

from gripfast import ConfigurationError
from gripfast.testing.colours import World

NAN, INFINITE = float("nan"), float("inf")
BAD_SECONDS = [NAN, INFINITE, -INFINITE, -1, True, False, "5", b"5", [5]]
BAD_TTLS = [*BAD_SECONDS, 0, 0.009, 86_400.1]


def refuses(attempt: Callable[[Any], Any], value: Any) -> bool:
    try:
        attempt(value)
    except ConfigurationError:
        return True
    return False


async def test_a_bad_ttl_is_refused_by_the_lock(world: World) -> None:
    client = world.connect()
    assert [ttl for ttl in BAD_TTLS if not refuses(lambda ttl: client.lock("job", ttl=ttl), ttl)] == []


async def test_a_bad_ttl_is_refused_by_connect(world: World) -> None:
    assert [ttl for ttl in BAD_TTLS if not refuses(lambda ttl: world.connect(ttl=ttl), ttl)] == []


async def test_a_bad_ttl_is_refused_in_the_url(world: World) -> None:
    texts = ["abc", "", "nan", "0", "1e9", "true"]
    assert [ttl for ttl in texts if not refuses(lambda ttl: world.connect(world.url_with(f"ttl={ttl}")), ttl)] == []


async def test_ttls_from_ten_milliseconds_to_a_day_are_taken(world: World) -> None:
    client = world.connect()
    for ttl in (0.01, 1, 86_400):
        client.lock("job", ttl=ttl)


async def test_a_lease_of_ten_milliseconds_is_granted_and_runs_out(world: World) -> None:
    alice = world.actor()
    first = await alice.acquire("job", ttl=0.01, renew=False)
    second = await alice.acquire("job")
    assert second.token > first.token
    assert first.lost.is_set()


async def test_a_bad_wait_is_refused(world: World) -> None:
    alice = world.actor()
    for wait in (NAN, -1, -0.001, "5", True):
        with pytest.raises(ConfigurationError):
            await alice.acquire("job", wait=wait)
    assert await world.inspect("job") is None


async def test_a_bad_wait_is_refused_by_the_lock(world: World) -> None:
    client = world.connect()
    bad = [NAN, -1, -0.001, "5", True]
    assert [value for value in bad if not refuses(lambda value: client.lock("job", wait=value), value)] == []


async def test_a_bad_max_hold_is_refused(world: World) -> None:
    client = world.connect()
    bad = [NAN, -1, 0, "5", True]
    assert [value for value in bad if not refuses(lambda value: client.lock("job", max_hold=value), value)] == []


async def test_configuration_errors_are_value_errors(world: World) -> None:
    with pytest.raises(ValueError, match="ttl"):
        world.connect().lock("job", ttl=0)


async def test_an_unknown_option_is_refused_by_name(world: World) -> None:
    with pytest.raises(ConfigurationError, match="colour_of_the_bikeshed"):
        world.connect(colour_of_the_bikeshed="red")
    with pytest.raises(ConfigurationError, match="colour_of_the_bikeshed"):
        world.connect(world.url_with("colour_of_the_bikeshed=red"))


async def test_what_the_user_prints_names_the_lock(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job")
    lease = await alice.acquire(lock)
    assert "job" in repr(lock)
    assert "job" in repr(lease)
    assert str(lease.token) in repr(lease)
    assert type(alice.client).__name__ in repr(alice.client)
