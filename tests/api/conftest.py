"""For tests of `within`, which say by `place` where the locks are, and for tests of observers."""

import uuid
from collections.abc import Iterator

import pytest

import gripfast
from api.observer_stage import Blocks
from api.within_stage import Place
from gripfast.testing.observing import Recorder


@pytest.fixture
def url(place: Place) -> str:
    """Of the locks of this test alone."""
    return str(place.server.lock_space(mode=place.mode))


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    """Somebody else, who uses leases."""
    with gripfast.connect(url) as client:
        yield client


@pytest.fixture
def table(place: Place) -> Iterator[str]:
    """Of the application: one row, with a number in it."""
    name = f"stock_{uuid.uuid4().hex}"
    engine = "" if place.engine == "postgresql" else "ENGINE = InnoDB"
    place.server.execute(f"CREATE TABLE {name} (amount INTEGER) {engine}")
    place.server.execute(f"INSERT INTO {name} VALUES (0)")
    if place.engine == "postgresql":
        place.server.execute(f"GRANT ALL ON {name} TO PUBLIC")
    yield name
    place.server.execute(f"DROP TABLE {name}")


@pytest.fixture
def seen() -> Recorder:
    return Recorder()


@pytest.fixture
def observed(seen: Recorder) -> Iterator[gripfast.Client]:
    """A client whose locks `seen` is told of."""
    with gripfast.connect("memory://", observers=[seen]) as client:
        yield client


@pytest.fixture
def blocks() -> Iterator[Blocks]:
    blocks = Blocks()
    yield blocks
    blocks.over.set()
