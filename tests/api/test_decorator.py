"""`locked(…)`: what is refused, and where. What it does over each store: `gripfast.testing.conformance`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

import gripfast
from gripfast import ConfigurationError, LockTimeout


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


async def apologise(error: LockTimeout) -> str:
    return f"busy: {error.name}"


@pytest.mark.parametrize("busy", ["skp", "RAISE", "", None, True, 5, ["skip"]])
def test_a_wrong_busy_is_refused_before_there_is_a_function(client: gripfast.Client, busy: Any) -> None:
    with pytest.raises(ConfigurationError, match="busy must be 'raise', 'skip', or a function"):
        client.locked("job", busy=busy)
    with pytest.raises(ConfigurationError, match="busy must be 'raise', 'skip', or a function"):
        gripfast.connect_async("memory://").locked("job", busy=busy)


@pytest.mark.parametrize("settings", [{}, {"wait": None}])
@pytest.mark.parametrize("method", ["locked", "read_locked", "write_locked", "limited"])
def test_a_busy_that_never_happens_is_refused(client: gripfast.Client, method: str, settings: dict[str, Any]) -> None:
    """A call without `wait` waits for ever, so it never finds the lock busy."""
    limit = {"limit": 3} if method == "limited" else {}
    for each in (client, gripfast.connect_async("memory://")):
        decorator = functools.partial(getattr(each, method), "job", **limit, **settings)
        with pytest.raises(ConfigurationError, match=r"busy='skip' would skip no call.* Write wait=0"):
            decorator(busy="skip")
        with pytest.raises(ConfigurationError, match=r"the function in busy would never be called.* Write wait=0"):
            decorator(busy=apologise)


@pytest.mark.parametrize("settings", [{"ttl": 0}, {"wait": -1}, {"wait": "5"}, {"max_hold": 0}, {"on_lost": "me"}])
def test_a_wrong_setting_is_refused_before_there_is_a_function(
    client: gripfast.Client, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        client.locked("job", **settings)
    with pytest.raises(ConfigurationError):
        gripfast.connect_async("memory://").locked("job", **settings)


def test_a_setting_that_is_none_is_a_type_error(client: gripfast.Client) -> None:
    settings: dict[str, Any] = {"tll": 5}
    with pytest.raises(TypeError, match="tll"):
        client.locked("job", **settings)


def test_a_plain_function_can_not_await_a_busy_function(client: gripfast.Client) -> None:
    decorate: Callable[[Any], Any] = client.locked("job", wait=0, busy=apologise)
    with pytest.raises(ConfigurationError, match="can't await apologise"):
        decorate(lambda: None)


def test_a_coroutine_function_awaits_its_busy_function_or_calls_it(client: gripfast.Client) -> None:
    @client.locked("job", wait=0, busy=apologise)
    async def first() -> str:
        return "done"

    @client.locked("job", wait=0, busy=lambda error: error.name)
    async def second() -> str:
        return "done"

    with client.lock("job"):
        assert asyncio.run(first()) == "busy: job"
        assert asyncio.run(second()) == "job"
    assert asyncio.run(first()) == "done"


def test_what_a_busy_function_raises_comes_out(client: gripfast.Client) -> None:
    def give_up(error: LockTimeout) -> str:
        raise KeyError(error.name)

    @client.locked("job", wait=0, busy=give_up)
    def job() -> str:
        return "done"

    with client.lock("job"), pytest.raises(KeyError, match="job"):
        job()
    assert job() == "done"


def test_a_lock_timeout_of_the_function_itself_is_not_taken_for_a_busy_lock(client: gripfast.Client) -> None:
    @client.locked("job", wait=0, busy="skip")
    def job() -> None:
        client.lock("job").acquire(wait=0)

    with pytest.raises(LockTimeout):
        job()


def test_a_plain_function_that_returns_a_coroutine_is_refused(client: gripfast.Client) -> None:
    """Its body would run when the lock is released."""
    ran = []

    def retried(function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        @functools.wraps(function)
        def call() -> Coroutine[Any, Any, None]:
            return function()

        return call

    @client.locked("job")
    @retried
    async def job() -> None:
        ran.append(True)

    with pytest.raises(ConfigurationError, match="decorate the coroutine function itself"):
        asyncio.run(job())
    assert ran == []
    assert client.inspect("job") is None


def test_a_class_is_not_decorated(client: gripfast.Client) -> None:
    with pytest.raises(ConfigurationError, match=r"Work is a class.*Decorate its methods"):

        @client.locked("job")
        class Work:
            pass


def test_a_generator_that_is_returned_would_run_without_the_lock(client: gripfast.Client) -> None:
    @client.locked("job")
    def rows() -> Iterator[int]:
        return (number for number in range(3))

    with pytest.raises(ConfigurationError, match=r"rows returned a generator.*return a list"):
        rows()
    assert client.inspect("job") is None


def test_an_async_generator_function_is_refused_as_what_it_is() -> None:
    with pytest.raises(ConfigurationError, match="is a generator function"):

        @gripfast.connect_async("memory://").locked("job")  # type: ignore[type-var]
        async def rows() -> AsyncIterator[int]:
            yield 1


class User:
    """Its text is the one that every object has: with its address in memory."""

    def __init__(self, id: int = 7) -> None:
        self.id = id


class Named(User):
    def __str__(self) -> str:
        return f"user {self.id}"


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("report:{user}", User(), r"\{user\.id\}"),
        ("report:{user!r}", Named(), r"\{user\.id\}"),
        ("report:{user!s:>5}", User(), r"\{user\.id\}"),
        ("report:{user[0]}", [User()], r"\{user\[0\]\.id\}"),
        ("report:{user}", [User()], r"\{user\.id\}"),
        ("report:{user}", apologise, r"\{user\.__qualname__\}"),
        ("report:{user}", lambda: None, r"\{user\.__qualname__\}"),
    ],
)
def test_a_name_with_an_address_in_memory_is_refused(
    client: gripfast.Client, name: str, value: object, instead: str
) -> None:
    """Every object would have a lock of its own, and exclude nobody."""

    def report(user: object) -> None:
        raise AssertionError("it ran")

    async def areport(user: object) -> None:
        raise AssertionError("it ran")

    for decorate in (
        client.locked(name),
        client.limited(name, 2),
        client.read_locked(name),
        client.once(name, keep=60),
    ):
        with pytest.raises(ConfigurationError, match=f"address.*{instead}"):
            decorate(report)(value)
        with pytest.raises(ConfigurationError, match=f"address.*{instead}"):
            asyncio.run(decorate(areport)(value))


@pytest.mark.parametrize(
    ("name", "value", "made"),
    [
        ("report:{user.id}", User(8), "report:8"),
        ("report:{user}", Named(8), "report:user 8"),
        ("report:{user}", "<lot at 0x7f>", "report:<lot at 0x7f>"),
        ("report at 0x7f:{user}", Named(8), "report at 0x7f:user 8"),
        ("report:{user}", User, f"report:{User}"),
    ],
)
def test_a_name_whose_text_is_the_same_everywhere_is_used(
    client: gripfast.Client, name: str, value: object, made: str
) -> None:
    @client.locked(name)
    def report(user: object) -> str:
        return gripfast.current_lease().name

    assert report(value) == made
