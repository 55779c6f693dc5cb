"""Each test has a lock database, which its processes find by themselves, and a client to look into it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from cli.commandline import Call, Log, Outcome
from gripfast.cli import main, signals


@pytest.fixture
def url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GRIPFAST_URL", sqlite_url)
    return sqlite_url


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as client:
        yield client


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "puppet.log")


def _never(_: object) -> None:
    pytest.fail("this command listens to signals: start it with run_gripfast()")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    log, of_leases = logging.getLogger("gripfast"), logging.getLogger("gripfast.lease")
    before = log.level, log.propagate, log.handlers
    watched = of_leases.level
    of_leases.setLevel(logging.NOTSET)  # another test of this process may have asked for everything

    def call(*args: str) -> Outcome:
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            # It would block the signals of all tests of this process.
            patch.setattr(signals.ReadSignals, "listen", _never)
            return Outcome(main(args), *capsys.readouterr())

    yield call
    of_leases.setLevel(watched)
    log.setLevel(before[0])
    log.propagate, log.handlers = before[1:]
