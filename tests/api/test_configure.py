"""`gripfast.configure()`: another default client, without an end for what the former one has."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Iterator

import pytest

import gripfast
from gripfast.api.default import default_client
from gripfast.machine import boottime
from support.waiting import auntil, until


@pytest.fixture(autouse=True)
def as_a_program_begins() -> Iterator[None]:
    gripfast.configure()
    yield
    gripfast.configure()


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of a variable that was changed."""
    return [record.getMessage() for record in caplog.records if record.name == "gripfast.default"]


def test_it_says_where_the_locks_are() -> None:
    gripfast.configure("memory://one", ttl=7)
    with gripfast.connect("memory://one") as one, gripfast.lock("job") as lease:
        assert one.inspect("job") is not None
        assert lease.ttl == 7


def test_tasks_share_it() -> None:
    async def try_it() -> object:
        assert gripfast.async_lock("job").ttl == 7
        return await gripfast.async_lock("job").try_acquire()

    gripfast.configure("memory://", ttl=7)  # private to the default client, of both kinds
    with gripfast.lock("job"):
        assert asyncio.run(try_it()) is None


def test_what_is_wrong_is_told_at_once_and_changes_nothing() -> None:
    gripfast.configure("memory://one")
    for target, options in (("gopher://one", {}), ("memory://two", {"tll": 3}), (None, {"tll": 3})):
        with pytest.raises(gripfast.ConfigurationError):
            gripfast.configure(target, **options)
    assert default_client().where == "memory://one"


def test_leases_of_the_former_client_are_renewed_until_they_are_released() -> None:
    gripfast.configure("memory://one")
    lease = gripfast.lock("job", ttl=0.3).acquire()
    gripfast.configure("memory://two")
    with gripfast.connect("memory://one") as one, gripfast.lock("job"):
        started = boottime()
        until(lambda: boottime() > started + 0.7)
        lease.ensure_held()
        lease.release()
        assert one.inspect("job") is None


def test_so_are_those_of_tasks() -> None:
    async def main() -> None:
        gripfast.configure("memory://one")
        async with gripfast.async_lock("job", ttl=0.3) as lease:
            gripfast.configure("memory://two")
            async with gripfast.async_lock("job"):
                started = boottime()
                await auntil(lambda: boottime() > started + 0.7)
                lease.ensure_held()
        with gripfast.connect("memory://one") as one:
            assert one.inspect("job") is None

    asyncio.run(main())


def test_locks_of_the_former_client_stay_where_they_are() -> None:
    gripfast.configure("memory://one")
    before = gripfast.lock("job")
    gripfast.configure("memory://two")
    with before, gripfast.connect("memory://one") as one:
        assert one.inspect("job") is not None


def test_a_former_client_that_nobody_uses_ends_by_itself() -> None:
    threads = set(threading.enumerate())
    gripfast.configure("memory://one")
    gripfast.lock("job").acquire().release()
    former = weakref.ref(default_client())
    gripfast.configure("memory://two")
    gc.collect()
    assert former() is None
    until(lambda: not set(threading.enumerate()) - threads)


def test_without_arguments_the_variable_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gripfast.configure("memory://one")
    monkeypatch.setenv("GRIPFAST_URL", "memory://two")
    gripfast.configure()
    assert gripfast.lock("job").ttl == 30
    assert default_client().where == "memory://two"


def test_options_alone_go_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_URL", "memory://two")
    gripfast.configure(ttl=7)
    assert default_client().where == "memory://two"
    assert gripfast.lock("job").ttl == 7


def test_a_variable_that_changes_later_is_ignored_and_that_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GRIPFAST_URL", "memory://one")
    gripfast.lock("job")
    assert changes(caplog) == []
    monkeypatch.setenv("GRIPFAST_URL", "redis://user:hunter2@two")
    for _ in range(2):
        gripfast.lock("job")
    (text,) = changes(caplog)
    assert "its locks are still in memory://one" in text
    assert "call gripfast.configure()" in text
    assert "hunter2" not in text
    assert caplog.records[-1].levelno == logging.WARNING
    assert default_client().where == "memory://one"


def test_a_variable_that_was_never_used_may_change(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gripfast.configure("memory://one")
    gripfast.lock("job")
    monkeypatch.setenv("GRIPFAST_URL", "memory://two")
    gripfast.lock("job")
    gripfast.configure()
    monkeypatch.setenv("GRIPFAST_URL", "memory://three")
    gripfast.lock("job")  # the first
    assert default_client().where == "memory://three"
    assert changes(caplog) == []
