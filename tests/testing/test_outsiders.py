"""Clients that were made before a World and are not in it: a test that counts on `hold()` would pass for nothing."""

import asyncio
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast.testing import World


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    """As if a module had made it when it was imported."""
    with gripfast.connect(url) as client:
        yield client


def claim(client: gripfast.Client) -> None:
    client.lock("job").acquire(wait=0).release()


def call_decorated(client: gripfast.Client) -> None:
    @client.locked("job")
    async def job() -> None:
        pass

    asyncio.run(job())


USES: list[Callable[[gripfast.Client], Any]] = [
    claim,
    call_decorated,
    lambda client: client.semaphore("jobs", 2).acquire().release(),
    lambda client: client.rwlock("jobs").write().acquire().release(),
    lambda client: client.locks("a", "b").acquire().release(),
]


def once(client: gripfast.Client) -> None:
    with client.once("digest", keep=60) as run:
        assert run


@pytest.mark.parametrize("use", [*USES, once])
def test_its_first_use_is_a_warning_that_names_redirect(
    client: gripfast.Client, use: Callable[[gripfast.Client], Any]
) -> None:
    with World():
        with pytest.warns(UserWarning, match=r"was made before this World.*Call world.redirect\(client\)"):
            use(client)
        use_again(client)
    with World():
        use_again(client)


def use_again(client: gripfast.Client) -> None:
    """The error filter of this test run would raise."""
    claim(client)
    call_decorated(client)


def test_it_names_the_line_that_uses_it(client: gripfast.Client) -> None:
    with World(), pytest.warns(UserWarning, match="redirect") as warned:
        claim(client)
    assert warned[0].filename == __file__


def test_an_async_client_too(url: str) -> None:
    async def main() -> None:
        async with gripfast.connect_async(url) as client:
            with World():
                with pytest.warns(UserWarning, match="redirect"):
                    await client.inspect("job")
                async with client.lock("another"):
                    pass

    asyncio.run(main())


def test_one_that_is_redirected_is_not(client: gripfast.Client) -> None:
    with World() as world:
        world.redirect(client)
        use_again(client)
    with World():  # which does not have it
        with pytest.warns(UserWarning, match="redirect"):
            claim(client)


def test_one_that_is_made_in_a_world_is_not(url: str) -> None:
    with World(), gripfast.connect(url) as client:
        use_again(client)


def test_those_of_worlds_and_of_memory_are_not() -> None:
    with gripfast.connect("memory://outsiders") as client, World() as outer, World():
        claim(client)
        claim(outer.client)
        gripfast.lock("job").acquire().release()


def test_the_inner_world_does_not_hide_it_from_the_outer_one(client: gripfast.Client) -> None:
    with World():
        with World():
            pass
        with pytest.warns(UserWarning, match="redirect"):
            claim(client)


def test_a_lock_of_the_default_client_is_told_where_to_be_made(url: str) -> None:
    """Its user has no client that could be passed to redirect()."""
    gripfast.configure(url)
    try:
        lock = gripfast.lock("job")
        with World():
            made_here = r"lock of gripfast\.lock\(\).*was made before this World.*Make it in the function that uses it"
            with pytest.warns(UserWarning, match=rf"{made_here}.*world\.redirect\(lock\)") as warned:
                lock.acquire(wait=0).release()
            assert "redirect(client)" not in str(warned[0].message)
    finally:
        gripfast.configure()


def test_after_the_world_it_is_as_before(client: gripfast.Client) -> None:
    before = dict(vars(client)), dict(vars(client._twins))
    with World():
        pass
    assert (dict(vars(client)), dict(vars(client._twins))) == before
    claim(client)


def test_a_client_that_is_dropped_meanwhile_is_gone_at_once(url: str) -> None:
    client = gripfast.connect(url)
    weak = weakref.ref(client)
    with warnings.catch_warnings(), World():
        gc.disable()
        try:
            del client
            assert weak() is None
        finally:
            gc.enable()
