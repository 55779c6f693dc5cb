"""Each test has a lock database. Its page is that of the stage."""

from collections.abc import Iterator

import pytest

import gripfast
from cli.conftest import call  # noqa: F401 (a fixture)
from serve.stage import Stage


@pytest.fixture
def client(sqlite_url: str) -> Iterator[gripfast.Client]:
    """Somebody who holds locks."""
    with gripfast.connect(sqlite_url) as client:
        yield client


@pytest.fixture
def stage(sqlite_url: str) -> Iterator[Stage]:
    """As it comes: read-only, with a token."""
    with Stage(sqlite_url) as stage:
        yield stage


@pytest.fixture
def breaking(sqlite_url: str) -> Iterator[Stage]:
    with Stage(sqlite_url, may_break=True) as stage:
        yield stage
