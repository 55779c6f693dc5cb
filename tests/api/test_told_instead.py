"""Mistakes that come from Gripfast's own words are told with what to write, too."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_operators_do_names_the_kind(connect: Callable[[str], Any]) -> None:
    """Without it, they would do it to the lock of the same name."""
    client = connect("memory://")
    kinds = {"semaphore": client.semaphore("job", 3), "rwlock": client.rwlock("job").read(), "": client.lock("job")}
    methods = {"release": "force_release", "force_release": "force_release", "locked": "inspect"}
    for (kind, held), (missing, method) in itertools.product(kinds.items(), methods.items()):
        call = f"`client.{method}(name, kind={kind!r})`" if kind else f"`client.{method}(name)`"
        with pytest.raises(AttributeError) as refused:
            getattr(held, missing)
        assert call in str(refused.value).replace("await ", "")


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_decorator_is_no_context_manager(connect: Callable[[str], Any]) -> None:
    client = connect("memory://")
    with pytest.raises(TypeError, match=r"it decorates functions\. Write `with client\.lock\(name\):`"):
        with client.locked("job"):
            pass
    with pytest.raises(TypeError, match=r"Write `with`, and one of client\.semaphore\(name, limit\), client\.rwlock"):
        with client.limited("job", 3):
            pass

    async def enter() -> None:
        async with client.locked("job"):
            pass

    with pytest.raises(TypeError, match=r"Write `async with client\.lock\(name\):`"):
        asyncio.run(enter())


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_name_from_the_arguments_is_a_text(connect: Callable[[str], Any]) -> None:
    client = connect("memory://")
    for decorate in (client.locked, lambda name: client.limited(name, 3)):
        with pytest.raises(
            gripfast.ConfigurationError, match=r"is a text with placeholders, such as 'report:{user_id}'"
        ):
            decorate(lambda user: f"user:{user}")


def test_bytes_of_a_queue_are_not_adopted_but_told(client: gripfast.Client) -> None:
    text = client.lock("job").acquire().detach()
    with pytest.raises(gripfast.ConfigurationError, match=r"this is bytes, .*pass text\.decode\(\)"):
        client.adopt(text.encode())  # type: ignore[arg-type]
    client.adopt(text).release()


@pytest.mark.parametrize("lock", [gripfast.lock, gripfast.async_lock])
def test_the_help_of_the_default_lock_names_its_settings(lock: Callable[..., Any]) -> None:
    told = inspect.getdoc(lock) or ""
    assert set(gripfast.LockKwargs.__annotations__) <= set(re.findall(r"\w+", told))
    assert "help(gripfast.Client.lock)" in told
