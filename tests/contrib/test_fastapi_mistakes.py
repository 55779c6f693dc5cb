"""What is wrong in a program is told when it starts. And what `only_one` does about a function that fails."""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple, cast

import pytest
from fastapi import Depends, FastAPI
from starlette.endpoints import HTTPEndpoint

import gripfast
from gripfast.contrib import fastapi, starlette
from support.both_colours import staged
from support.waiting import auntil

BOTH = [fastapi.locked, starlette.locked]
Locked = Callable[..., Any]


@pytest.mark.parametrize("locked", BOTH)
@pytest.mark.parametrize("name", ["cart:{}", "cart:{0}", "cart:{cart.id}", "cart:{cart[id]}"])
def test_a_placeholder_that_is_no_path_parameter_is_refused(locked: Locked, name: str) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="write the name of a path parameter"):
        locked(name)


def test_a_dependency_that_decorates_the_endpoint_is_refused() -> None:
    """FastAPI's own error would say that an endpoint must be a callable."""
    app = FastAPI()
    with pytest.raises(gripfast.ConfigurationError, match=r"is no decorator: write `lease=Depends\(locked\(…\)\)`"):

        @app.post("/carts/{cart_id}/pay")
        @fastapi.locked("cart:{cart_id}")
        async def pay(cart_id: int) -> None: ...


def test_a_dependency_without_depends_is_refused() -> None:
    app, forgotten = FastAPI(), cast(Any, fastapi.locked("cart:{cart_id}"))
    with pytest.raises(AttributeError, match=r"write dependencies=\[Depends\(locked\(…\)\)\]"):
        app.post("/carts/{cart_id}/pay", dependencies=[forgotten])(lambda cart_id: None)


def test_the_lease_of_a_dependency_is_no_current_lease_and_that_is_told() -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"In an endpoint of FastAPI, .* Depends\(locked\(…\)\)\]`"):
        gripfast.current_lease()


def test_every_version_of_fastapi_sees_a_coroutine_function() -> None:
    """Some look at the callable, some at what it wraps. Any other would be called in a thread."""
    dependency: Any = fastapi.locked("cart:{cart_id}")
    assert inspect.iscoroutinefunction(dependency.__call__)
    assert inspect.iscoroutinefunction(inspect.unwrap(dependency))
    assert list(inspect.signature(dependency).parameters) == ["lease"]
    assert dependency.__globals__ is inspect.unwrap(dependency).__globals__


@pytest.mark.parametrize("locked", BOTH)
def test_a_broken_template_is_refused(locked: Locked) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="not a valid template"):
        locked("cart:{")


@pytest.mark.parametrize("locked", BOTH)
@pytest.mark.parametrize("wrong", [{"release": "at once"}, {"busy": 200}, {"lost": 204}, {"busy": "409"}])
def test_a_wrong_choice_is_refused(locked: Locked, wrong: dict[str, object]) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=next(iter(wrong))):
        locked("cart:{cart_id}", **wrong)


@pytest.mark.parametrize("locked", BOTH)
@pytest.mark.parametrize("wrong", [{"ttl": -1}, {"wait": "5s"}, {"retry_after": "x"}, {"retry_after": -1}])
def test_a_wrong_setting_is_told_at_once(locked: Locked, wrong: dict[str, object]) -> None:
    """Not at the first request, although the client may be configured later."""
    with pytest.raises(gripfast.ConfigurationError, match=next(iter(wrong))):
        locked("cart:{cart_id}", **wrong)
    with pytest.raises(gripfast.ConfigurationError, match=next(iter(wrong))):
        locked(lambda: "cart", **wrong)


@pytest.mark.parametrize("locked", BOTH)
def test_so_is_a_word_that_a_lock_does_not_have(locked: Locked) -> None:
    with pytest.raises(TypeError, match=r"has no 'timeout': write ttl=5.* or wait=5"):
        locked("cart:{cart_id}", timeout=5)
    with pytest.raises(TypeError, match="did you mean 'ttl'"):
        locked("cart:{cart_id}", tll=5)


@pytest.mark.parametrize("locked", BOTH)
def test_to_check_the_settings_makes_no_default_client(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_REQUIRE_URL", "1")
    monkeypatch.delenv("GRIPFAST_URL", raising=False)
    gripfast.configure()
    locked("cart:{cart_id}", ttl=5, lazy_release=True)


@pytest.mark.parametrize("locked", BOTH)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_a_store_can_not_do_is_told_at_once_if_the_client_is_there(
    locked: Locked, connect: Callable[[str], Any]
) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="lazy_release does not work on memory"):
        locked("cart:{cart_id}", client=connect("memory://"), lazy_release=True)


def test_a_class_is_no_endpoint() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="decorate its methods"):
        starlette.locked("all")(HTTPEndpoint)


def test_only_a_coroutine_function_can_run_on_one_worker() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="async def"):
        fastapi.only_one("leader", print)  # type: ignore[arg-type]


def test_the_lock_adds_nothing_to_the_schema() -> None:
    app = FastAPI()

    @app.post("/carts/{cart_id}", dependencies=[Depends(fastapi.locked("cart:{cart_id}"))])
    async def pay(cart_id: int) -> None:
        pass

    (parameter,) = app.openapi()["paths"]["/carts/{cart_id}"]["post"]["parameters"]
    assert parameter["name"] == "cart_id"


@staged
async def test_when_the_function_fails_that_is_logged_and_another_worker_leads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = gripfast.connect_async("memory://")
    runs: list[str] = []

    async def fail(term: gripfast.AsyncLease) -> None:
        runs.append("fails")
        raise OSError("no mail server")

    async def work(term: gripfast.AsyncLease) -> None:
        runs.append("works")

    with caplog.at_level(logging.ERROR):
        async with client, fastapi.only_one("leader", fail, client=client)(None):
            await auntil(lambda: runs, within=30)
            async with fastapi.only_one("leader", work, client=client)(None):
                await auntil(lambda: "works" in runs, within=30)
            assert await client.inspect("leader") is None, "the lifespan is over when the term is released"
    assert runs == ["fails", "works"]
    assert "the function of only_one('leader') failed" in caplog.text
    assert "no mail server" in caplog.text


def test_a_plain_client_serves_every_event_loop() -> None:
    async def lead(client: gripfast.Client) -> int:
        led: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def function(term: gripfast.AsyncLease) -> None:
            led.set_result(term.token)

        async with starlette.only_one("leader", function, client=client)(None):
            return await led

    with gripfast.connect("memory://") as client:
        tokens = [asyncio.run(lead(client)) for _ in range(2)]
    assert tokens == sorted(set(tokens))


async def raises() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise OSError("the mail server has hung up")


async def returns() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def is_cancelled() -> None:
    """By somebody else."""
    raise asyncio.CancelledError


class Led(NamedTuple):
    client: gripfast.AsyncClient
    terms: list[gripfast.AsyncLease]


@contextlib.asynccontextmanager
async def led_by(function: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[Led]:
    terms: list[gripfast.AsyncLease] = []

    async def lead(term: gripfast.AsyncLease) -> None:
        terms.append(term)
        await function()

    async with gripfast.connect_async("memory://") as client, asyncio.timeout(60):
        async with starlette.only_one("leader", lead, client=client, ttl=1)(None):
            await auntil(lambda: terms, within=30)
            yield Led(client, terms)
        assert await client.inspect("leader") is None


@pytest.mark.parametrize("function", [raises, returns])
@staged
async def test_a_shutdown_ends_whatever_the_function_makes_of_its_cancellation(function: Callable[..., Any]) -> None:
    async with led_by(function) as led:
        assert len(led.terms) == 1


@staged
async def test_a_worker_whose_function_returns_when_its_term_is_lost_is_a_candidate_again() -> None:
    async with led_by(returns) as led:
        assert await led.client.force_release("leader")
        await auntil(lambda: len(led.terms) > 1, within=30)


@staged
async def test_a_worker_whose_function_is_cancelled_by_somebody_else_is_a_candidate_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starlette, "PAUSE_SECONDS", 0.01)
    async with led_by(is_cancelled) as led:
        await auntil(lambda: len(led.terms) > 1, within=30)


class Cart:
    """Its text is its address in memory."""


def test_a_name_with_an_address_in_memory_is_refused() -> None:
    """As a convertor, or a type of FastAPI's, may make it of a path parameter."""
    template = starlette.Template("cart:{cart}")
    with pytest.raises(gripfast.ConfigurationError, match=r"address.*\{cart\.id\}"):
        template.filled({"cart": Cart()})
    assert template.filled({"cart": 7}) == "cart:7"
