"""What went wrong with locks on Redis, and does not here. `test_traps.py` has the list."""

import logging
import uuid

import pytest

import gripfast
from gripfast.stores.redis.keys import side_key
from support.redis_server import RedisServer, shared_server


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_evict_locks_is_told_of(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Lock keys have a ttl, so they are the first to go where memory is short: 50 of 50."""
    with RedisServer("--maxmemory-policy", policy) as server, caplog.at_level(logging.WARNING, "gripfast"):
        with gripfast.connect(server.url) as client, client.lock("job"):
            pass
    advice = f"set its maxmemory-policy to noeviction (it is {policy})"
    assert f"may evict locks when its memory is full: {advice}" in caplog.text


def test_a_server_that_evicts_nothing_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    with gripfast.connect(shared_server().url) as client, client.lock(uuid.uuid4().hex):
        pass
    assert "evict" not in caplog.text


def test_a_token_of_sixteen_digits_is_kept_to_the_last_one() -> None:
    """Lua writes such a number as 1.7631648001235e+15 unless it is told how."""
    name, server = uuid.uuid4().hex, shared_server()
    with gripfast.connect(server.url) as client, server.client() as redis:
        tokens = []
        for _ in range(20):
            with client.lock(name) as lease:
                tokens.append(lease.token)
                kept = redis.get(side_key(f"lock:{name}".encode(), b"token"))
                assert str(lease.token).encode() in kept, kept
    assert tokens == sorted(set(tokens))
    assert min(tokens) > 10**15
