"""Every test that asks for `world` runs over every store in both colours; `threads` and `tasks` fix the colour.

`@pytest.mark.needs("fair", …)` skips a store whose capabilities say no, `@pytest.mark.unless("session")` one whose
capabilities say yes. Nothing else skips.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from support.colours import COLOURS, World, play
from support.stores import STORES, StoreUnderTest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): skip stores that can not do this")
    config.addinivalue_line("markers", "unless(*capabilities): skip stores that work in this way")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    play(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters})
    return True


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty lock space."""
    store: StoreUnderTest = request.param
    with store.fresh(tmp_path) as fresh:
        _skip_what_does_not_apply(request, fresh)
        yield fresh


def _skip_what_does_not_apply(request: pytest.FixtureRequest, url: str) -> None:
    with gripfast.connect(url) as client:
        capabilities = client.capabilities
    for marker, wanted in (("needs", True), ("unless", False)):
        for capability in [name for mark in request.node.iter_markers(marker) for name in mark.args]:
            if getattr(capabilities, capability) is not wanted:
                pytest.skip(f"{capability} is {not wanted} in the capabilities of this store")


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
    assert [record.getMessage() for record in records if "unexpected" in record.getMessage()] == []
