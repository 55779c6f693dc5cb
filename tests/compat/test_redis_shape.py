"""What redis-py's lock classes do, Gripfast's do in their place: the same tests over all four."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import DataError, LockError, LockNotOwnedError

from compat.redis_kinds import KINDS, Kind, new_name
from support.redis_server import shared_server
from support.waiting import until

all_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
pytestmark = all_kinds


@pytest.fixture
def server() -> Iterator["redis.Redis"]:
    """To look at the key, and to be someone else."""
    with shared_server().client() as client:
        yield client


@pytest.fixture
def name() -> str:
    return new_name()


@contextlib.asynccontextmanager
async def lock_of(kind: Kind, name: Any, **settings: Any) -> AsyncIterator[Any]:
    async with kind.client() as client:
        yield kind.lock(client, name, **settings)


async def test_it_has_the_attributes_it_was_made_with(kind: Kind, name: str) -> None:
    settings = {
        "timeout": 10,
        "sleep": 0.5,
        "blocking": False,
        "blocking_timeout": 3,
        "thread_local": False,
        "raise_on_release_error": False,
    }
    async with kind.client() as client:
        lock = kind.lock(client, name, **settings)
        assert lock.redis is client
        assert lock.name == name
        assert {each: getattr(lock, each) for each in settings} == settings


async def test_the_key_is_the_name_and_its_value_the_token(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        assert lock.local.token is None
        assert await lock.acquire() is True
        token: Any = lock.local.token
        assert isinstance(token, bytes)
        assert server.get(name) == token
        assert await lock.release() is None
        assert server.get(name) is None
        assert lock.local.token is None


@pytest.mark.parametrize("timeout", [10, 9.5])
async def test_a_timeout_is_the_life_of_the_key(kind: Kind, name: str, server: Any, timeout: float) -> None:
    async with lock_of(kind, name, timeout=timeout) as lock:
        assert await lock.acquire(blocking=False)
        assert 8000 < server.pttl(name) <= timeout * 1000
        await lock.release()


async def test_attributes_that_are_changed_count_for_the_next_acquire(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, new_name(), timeout=10) as lock:
        lock.name, lock.timeout = name, 100
        await lock.acquire()
        assert 90_000 < server.pttl(name) <= 100_000
        await lock.release()


async def test_a_lock_that_is_taken_is_not_waited_for_without_blocking(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "someone", px=60_000)
    async with lock_of(kind, name) as lock:
        assert await lock.acquire(blocking=False) is False
        assert await lock.acquire(blocking=False, blocking_timeout=60) is False
        assert await lock.acquire(blocking_timeout=0) is False
        assert await lock.acquire(blocking_timeout=-1) is False
        assert lock.local.token is None
    async with lock_of(kind, name, blocking=False) as lock:
        assert await lock.acquire() is False
    async with lock_of(kind, name, blocking_timeout=0) as lock:
        assert await lock.acquire() is False
    assert server.get(name) == b"someone"


async def test_patience_ends_with_false(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "someone", px=60_000)
    async with lock_of(kind, name, blocking_timeout=60) as lock:
        assert await lock.acquire(blocking_timeout=0.15) is False


async def test_a_lock_that_is_taken_is_waited_for(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "someone", px=200)
    async with lock_of(kind, name) as lock:
        assert await lock.acquire(blocking_timeout=10) is True
        assert server.get(name) == lock.local.token
        await lock.release()


async def test_a_second_acquire_finds_it_taken(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        token = lock.local.token
        assert await lock.acquire(blocking=False) is False
        assert lock.local.token == token
        await lock.release()


async def test_releasing_what_was_never_acquired_is_a_lock_error(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        with pytest.raises(LockError, match=r"Cannot release a lock that's not owned or is already unlocked\."):
            await lock.release()


async def test_releasing_twice_is_a_lock_error(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        await lock.release()
        with pytest.raises(LockError, match="already unlocked"):
            await lock.release()


async def test_releasing_what_someone_else_has_now_is_told_and_leaves_it(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        server.set(name, "someone")
        with pytest.raises(LockNotOwnedError, match="Cannot release a lock that's no longer owned"):
            await lock.release()
        assert lock.local.token is None
    assert server.get(name) == b"someone"


async def test_locked_and_owned(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        assert await lock.locked() is False
        assert await lock.owned() is False
        await lock.acquire()
        assert await lock.locked() is True
        assert await lock.owned() is True
        server.set(name, "someone")
        assert await lock.locked() is True
        assert await lock.owned() is False
        server.delete(name)
        assert await lock.locked() is False
        assert await lock.owned() is False
        with pytest.raises(LockNotOwnedError):
            await lock.release()


async def test_a_timeout_that_ran_out_ends_the_ownership(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=0.1) as lock:
        await lock.acquire()
        until(lambda: server.get(name) is None)
        assert await lock.owned() is False
        with pytest.raises(LockNotOwnedError, match="Cannot extend a lock that's no longer owned"):
            await lock.extend(10)
        with pytest.raises(LockNotOwnedError, match="Cannot reacquire a lock that's no longer owned"):
            await lock.reacquire()
        with pytest.raises(LockNotOwnedError, match="Cannot release a lock that's no longer owned"):
            await lock.release()


async def test_it_can_be_acquired_again_after_it_ran_out(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=0.1) as lock:
        await lock.acquire()
        first = lock.local.token
        until(lambda: server.get(name) is None)
        assert await lock.acquire(blocking_timeout=5) is True
        assert lock.local.token not in (None, first)
        await lock.release()
        assert lock.local.token is None


async def test_extend_adds_to_what_is_left(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as lock:
        await lock.acquire()
        assert await lock.extend(10) is True
        assert 16_000 < server.pttl(name) <= 20_000
        assert await lock.extend(2.5) is True
        assert 18_000 < server.pttl(name) <= 22_500
        await lock.release()


async def test_extend_can_set_it_anew(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as lock:
        await lock.acquire()
        assert await lock.extend(50, replace_ttl=True) is True
        assert 40_000 < server.pttl(name) <= 50_000
        assert await lock.extend(5, replace_ttl=True) is True
        assert server.pttl(name) <= 5000
        await lock.release()


async def test_reacquire_sets_the_timeout_anew(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as lock:
        await lock.acquire()
        server.pexpire(name, 5000)
        assert await lock.reacquire() is True
        assert 8000 < server.pttl(name) <= 10_000
        await lock.release()


@pytest.mark.parametrize(("verb", "arguments"), [("extend", (10,)), ("reacquire", ())])
async def test_what_is_not_held_or_has_no_timeout_is_not_prolonged(
    kind: Kind, name: str, verb: str, arguments: tuple[Any, ...]
) -> None:
    async with lock_of(kind, name, timeout=10) as lock:
        with pytest.raises(LockError, match=f"Cannot {verb} an unlocked lock"):
            await getattr(lock, verb)(*arguments)
    async with lock_of(kind, name) as lock:
        await lock.acquire()
        with pytest.raises(LockError, match=f"Cannot {verb} a lock with no timeout"):
            await getattr(lock, verb)(*arguments)
        await lock.release()


@pytest.mark.parametrize("token", ["of mine", b"of mine", b"\xff\x00 \r\n", "Käse", ""])
@pytest.mark.parametrize("timeout", [10, None])
async def test_a_token_of_the_callers_becomes_the_value(
    kind: Kind, name: str, server: Any, token: str | bytes, timeout: float | None
) -> None:
    expected = token.encode() if isinstance(token, str) else token
    async with lock_of(kind, name, timeout=timeout) as lock:
        assert await lock.acquire(token=token) is True
        assert server.get(name) == lock.local.token == expected
        assert await lock.owned() is True
        assert await lock.acquire(token=token, blocking=False) is False
        if timeout:
            assert 9000 < server.pttl(name) <= 10_000
            assert await lock.extend(10) is True
            assert 16_000 < server.pttl(name) <= 20_000
        await lock.release()
    assert server.get(name) is None


async def test_two_callers_with_the_same_token_exclude_each_other(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as one, lock_of(kind, name, timeout=10) as other:
        assert await one.acquire(token="same") is True
        assert await other.acquire(token="same", blocking=False) is False
        assert await other.acquire(token="same", blocking_timeout=0.15) is False
        assert server.get(name) == b"same"
        await one.release()


async def test_a_token_set_by_hand_stands_for_a_lock_acquired_elsewhere(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "from afar", px=10_000)
    async with lock_of(kind, name, timeout=10) as lock:
        lock.local.token = b"from afar"
        assert lock.local.token == b"from afar"
        assert await lock.owned() is True
        assert await lock.extend(10) is True
        assert 16_000 < server.pttl(name) <= 20_000
        assert await lock.reacquire() is True
        assert 8000 < server.pttl(name) <= 10_000
        assert await lock.release() is None
        assert lock.local.token is None
        assert server.get(name) is None


async def test_a_wrong_token_set_by_hand_releases_nothing(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "someone", px=10_000)
    async with lock_of(kind, name, timeout=10) as lock:
        lock.local.token = b"me"
        assert await lock.owned() is False
        with pytest.raises(LockNotOwnedError, match="extend"):
            await lock.extend(10)
        with pytest.raises(LockNotOwnedError, match="reacquire"):
            await lock.reacquire()
        with pytest.raises(LockNotOwnedError, match="release"):
            await lock.release()
        assert lock.local.token is None
    assert server.get(name) == b"someone"


async def test_a_key_that_never_expires_is_not_extended(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "from afar")
    async with lock_of(kind, name, timeout=10) as lock:
        lock.local.token = b"from afar"
        with pytest.raises(LockNotOwnedError, match="extend"):
            await lock.extend(10)
        await lock.release()


async def test_it_is_released_by_its_token_through_another_object(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, timeout=10) as lock, lock_of(kind, name, timeout=10) as other:
        await lock.acquire()
        other.local.token = lock.local.token
        await other.release()
        assert server.get(name) is None
        with pytest.raises(LockNotOwnedError):
            await lock.release()


async def test_a_block_has_it_and_it_is_free_after(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        async with lock as entered:
            assert entered is lock
            assert server.get(name) == lock.local.token
            assert await lock.owned()
        assert server.get(name) is None
        assert lock.local.token is None


async def test_a_block_that_fails_gives_it_back(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        with pytest.raises(ZeroDivisionError):
            async with lock:
                _ = 1 / 0
        assert server.get(name) is None


async def test_a_block_is_not_entered_without_the_lock(kind: Kind, name: str, server: Any) -> None:
    server.set(name, "someone", px=60_000)
    async with lock_of(kind, name, blocking_timeout=0.15) as lock:
        with pytest.raises(LockError, match="Unable to acquire lock within the time specified"):
            async with lock:
                pytest.fail("entered")
    async with lock_of(kind, name, blocking=False) as lock:
        with pytest.raises(LockError, match="Unable to acquire"):
            async with lock:
                pytest.fail("entered")


async def test_the_end_of_a_block_tells_of_a_loss(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        with pytest.raises(LockNotOwnedError):
            async with lock:
                server.set(name, "someone")
    assert server.get(name) == b"someone"


async def test_the_end_of_a_block_tells_of_a_release_within(kind: Kind, name: str) -> None:
    async with lock_of(kind, name) as lock:
        with pytest.raises(LockError, match="already unlocked"):
            async with lock:
                await lock.release()


async def test_the_end_of_a_block_may_be_told_not_to_raise(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name, raise_on_release_error=False) as lock:
        async with lock:
            server.set(name, "someone")
        server.delete(name)
        async with lock:
            await lock.release()
        assert server.get(name) is None


async def test_what_was_acquired_anew_within_a_block_is_released_at_its_end(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name) as lock:
        async with lock:
            await lock.release()
            await lock.acquire()
        assert server.get(name) is None


async def test_a_name_may_be_bytes(kind: Kind, name: str, server: Any) -> None:
    async with lock_of(kind, name.encode()) as lock:
        assert lock.name == name.encode()
        await lock.acquire()
        assert server.get(name) == lock.local.token
        await lock.release()


@pytest.mark.parametrize("braces", ["{%s}", "a}%s", "x{}%s", "{a}{%s"])
async def test_a_name_may_have_braces(kind: Kind, name: str, server: Any, braces: str) -> None:
    async with lock_of(kind, braces % name) as lock:
        async with lock:
            assert server.get(braces % name) == lock.local.token
        assert server.get(braces % name) is None


async def test_a_client_that_decodes_replies_makes_no_difference(kind: Kind, name: str, server: Any) -> None:
    async with kind.client(decode_responses=True) as client:
        lock = kind.lock(client, name, timeout=10)
        assert await lock.acquire(token="of mine") is True
        assert lock.local.token == server.get(name) == b"of mine"
        assert await lock.owned() is True
        assert await lock.extend(1) is True
        await lock.release()


@pytest.mark.parametrize("name", [None, True, ["job"]])
async def test_a_name_that_is_no_key_is_a_data_error(kind: Kind, name: Any) -> None:
    with pytest.raises(DataError):
        async with lock_of(kind, name) as lock:
            await lock.acquire()


@pytest.mark.parametrize("timeout", [-1, 0.0001])
async def test_a_timeout_that_no_key_can_have_is_a_redis_error(kind: Kind, name: str, timeout: float) -> None:
    with pytest.raises(redis.RedisError):
        async with lock_of(kind, name, timeout=timeout) as lock:
            await lock.acquire()


async def test_an_empty_timeout_is_none(kind: Kind, name: str) -> None:
    async with lock_of(kind, name, timeout=0) as lock:
        assert await lock.acquire() is True
        await lock.release()
