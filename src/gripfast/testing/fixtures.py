"""What the tests of the suite ask for. The fixture `url`, an empty lock space, is the package's own.

A test that asks for `world` runs in sync and in async code; `threads` and `tasks` are one of them. `@needs("fair", …)`
skips a store whose capabilities say no, `@unless("session")` one whose capabilities say yes. Nothing else skips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

import gripfast
from gripfast.testing.colours import COLOURS, World

T = TypeVar("T", bound=Callable[..., Any])

_WANTED = "wanted_capabilities"


def needs(*capabilities: str) -> Callable[[T], T]:
    return _wanting(dict.fromkeys(capabilities, True))


def unless(*capabilities: str) -> Callable[[T], T]:
    return _wanting(dict.fromkeys(capabilities, False))


def _wanting(capabilities: dict[str, bool]) -> Callable[[T], T]:
    """Not by a mark of pytest's, which a project with --strict-markers would have to know before it imports this."""

    def note(test: T) -> T:
        test.__dict__[_WANTED] = {**test.__dict__.get(_WANTED, {}), **capabilities}
        return test

    return note


@pytest.fixture(autouse=True)
def only_what_the_store_can_do(request: pytest.FixtureRequest) -> None:
    wanted: dict[str, bool] = getattr(request.function, _WANTED, {})
    if not wanted:
        return
    with gripfast.connect(request.getfixturevalue("url")) as client:
        capabilities = client.capabilities
    for name, value in wanted.items():
        if getattr(capabilities, name) is not value:
            pytest.skip(f"{name} is {not value} in the capabilities of this store")


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, url: str) -> World:
    return World(url, COLOURS[request.param])


@pytest.fixture
def threads(url: str) -> World:
    """A world of threads, for what only blocking code can do."""
    return World(url, COLOURS["blocking"])


@pytest.fixture
def tasks(url: str) -> World:
    """A world of tasks, for what only asyncio code can do."""
    return World(url, COLOURS["asyncio"])


@pytest.fixture(autouse=True)
def no_surprise(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that Gripfast's own threads and tasks did not expect may happen in any test."""
    yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in records if "unexpected error" in record.getMessage()] == []
