"""The other libraries do what the interop tests take for granted: among themselves they exclude each other."""

from redis import Redis

from interop.foreign import Foreign, Plain
from support.redis_server import shared_server

TTL = 30.0


def test_it_takes_extends_and_gives_back_a_key(foreign: Foreign, url: str, key: str, onlooker: Redis) -> None:
    held = foreign.acquire(key, TTL)
    assert 0 < onlooker.pttl(key) <= TTL * 1000
    assert foreign.acquire(key, TTL) is None
    assert foreign.extend(held, 2 * TTL)
    assert onlooker.pttl(key) > TTL * 1000
    assert foreign.release(held)
    assert not onlooker.exists(key)


def test_it_is_refused_what_it_lost(foreign: Foreign, url: str, key: str, onlooker: Redis) -> None:
    held, extended = foreign.acquire(key, TTL), foreign.acquire(f"{key} 2", TTL)
    onlooker.mset({key: "another's", f"{key} 2": "another's"})
    assert not foreign.extend(extended, TTL)
    assert not foreign.release(held)
    assert onlooker.mget(key, f"{key} 2") == ["another's", "another's"]


def test_it_excludes_and_is_excluded_by_a_plain_key(foreign: Foreign, url: str, key: str) -> None:
    plain = Plain(shared_server())
    held = plain.acquire(key, TTL)
    assert foreign.acquire(key, TTL) is None
    assert plain.release(held)
    assert foreign.acquire(key, TTL) is not None
    assert plain.acquire(key, TTL) is None
    plain.close()


def test_a_lock_without_a_ttl_has_none(endless: Foreign, url: str, key: str, onlooker: Redis) -> None:
    held = endless.acquire(key, None)
    assert onlooker.pttl(key) == -1
    assert endless.release(held)


def test_counting_counts(foreign: Foreign, url: str, key: str, prefix: str, onlooker: Redis) -> None:
    foreign.count(key, TTL, f"{prefix}counter", times=3)
    assert onlooker.get(f"{prefix}counter") == "3"
    assert not onlooker.exists(key)
