"""Gripfast's shipped suite over every store, sync and async: here is only where their lock spaces are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gripfast.testing.fixtures import no_surprise, only_what_the_store_can_do, tasks, threads, world
from gripfast.testing.plugin import pytest_pyfunc_call
from support import misbehaving
from support.stores import STORES, StoreUnderTest

__all__ = ["no_surprise", "only_what_the_store_can_do", "pytest_pyfunc_call", "tasks", "threads", "url", "world"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`--observer`: the same tests, beside observers that misbehave."""
    kinds = misbehaving.chosen(metafunc.config)
    if kinds and not hasattr(metafunc.module, "observer"):  # a file may have chosen its own
        metafunc.parametrize("observer", kinds, indirect=True)


@pytest.fixture(autouse=True)
def observer(request: pytest.FixtureRequest) -> Iterator[None]:
    with misbehaving.beside(getattr(request, "param", None)):
        yield


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty lock space."""
    store: StoreUnderTest = request.param
    with store.fresh(tmp_path) as fresh:
        yield fresh
