"""Each test has a lock database, which its processes find by themselves, and a client to look into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from cli.commandline import Log


@pytest.fixture
def url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOLDFAST_URL", sqlite_url)
    return sqlite_url


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "puppet.log")
