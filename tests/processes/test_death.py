"""Processes that are killed or stopped: holders, waiters, and whoever comes next."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from support.processes import Worker
from support.waiting import until

AT_ONCE = 2.5
"""Seconds, on a busy machine. The leases here live for 30 s, and a waiter asks by itself every 3 s: it is neither."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as client:
        yield client


def waiters(client: gripfast.Client, name: str) -> int:
    info = client.inspect(name)
    return info.waiters if info else 0


def test_a_waiter_gets_the_lock_at_once_when_the_process_that_holds_it_is_killed(
    client: gripfast.Client, url: str, tmp_path: Path
) -> None:
    with Worker("hold.py", url, "job", 30) as holder, Worker("wait.py", 0, url, "job", tmp_path / "journal") as waiter:
        (first,) = holder.expect("held")
        waiter.expect("ready")
        waiter.say("stand in line")
        until(lambda: waiters(client, "job") == 1)
        holder.kill()
        (second,) = waiter.expect("held", within=AT_ONCE)
        assert int(second) > int(first)


def test_a_newcomer_gets_the_lock_at_once_after_the_process_that_held_it_was_killed(
    client: gripfast.Client, url: str
) -> None:
    with Worker("hold.py", url, "job", 30) as holder:
        (token,) = holder.expect("held")
        assert client.lock("job").try_acquire() is None
        holder.kill()
        lease = client.lock("job").try_acquire()
    assert lease is not None
    assert lease.token > int(token)
    lease.release()


@pytest.mark.parametrize("killed", [0, 1], ids=["first in line", "second in line"])
def test_a_waiting_process_that_is_killed_does_not_block_the_line(
    client: gripfast.Client, url: str, tmp_path: Path, killed: int
) -> None:
    journal = tmp_path / "journal"
    lease = client.lock("job").acquire()
    with Worker("wait.py", 0, url, "job", journal) as first, Worker("wait.py", 1, url, "job", journal) as second:
        for place, waiter in enumerate([first, second], start=1):
            waiter.expect("ready")
            waiter.say("stand in line")
            until(lambda place=place: waiters(client, "job") == place)
        [first, second][killed].kill()
        lease.release()
        survivor = [first, second][1 - killed]
        survivor.expect("held", within=AT_ONCE)
        survivor.say("leave")
        survivor.expect("released")
    client.lock("job").acquire(wait=AT_ONCE).release()


def test_a_line_of_killed_processes_only_leaves_the_lock_free(
    client: gripfast.Client, url: str, tmp_path: Path
) -> None:
    with Worker("hold.py", url, "job", 30) as holder, Worker("wait.py", 0, url, "job", tmp_path / "journal") as waiter:
        holder.expect("held")
        waiter.expect("ready")
        waiter.say("stand in line")
        until(lambda: waiters(client, "job") == 1)
        waiter.kill()
        holder.kill()
    client.lock("job").acquire(wait=AT_ONCE).release()
    assert client.inspect("job") is None


@pytest.mark.parametrize("script", ["hold.py", "ahold.py"], ids=["blocking", "asyncio"])
def test_a_holder_that_was_stopped_for_longer_than_its_ttl_finds_its_lease_lost(
    client: gripfast.Client, url: str, script: str
) -> None:
    with Worker(script, url, "job", 1.0) as holder:
        (old,) = holder.expect("held")
        holder.stop()
        with client.lock("job").acquire(wait=10.0) as lease:
            holder.say("report")  # waits in the pipe: the first thing that the holder reads when it wakes
            holder.go_on()
            lost, held, remaining, reason = holder.expect("lost")
            assert (lost, held, remaining) == ("True", "False", "0.0")
            assert reason in ("expired", "taken")
            assert lease.token > int(old)
            lease.ensure_held()
        holder.say("end")
        assert holder.ended() == 0


def test_an_async_body_whose_process_was_stopped_is_cancelled_and_ends_with_lease_lost(
    client: gripfast.Client, url: str
) -> None:
    with Worker("abody.py", url, "job", 1.0) as holder:
        (old,) = holder.expect("held")
        holder.stop()
        with client.lock("job").acquire(wait=10.0) as lease:
            woken = time.monotonic()
            holder.go_on()
            lost, held, remaining, reason = holder.expect("lost")
            assert time.monotonic() - woken < AT_ONCE
            assert (lost, held, remaining) == ("True", "False", "0.0")
            assert reason in ("expired", "taken")
            assert lease.token > int(old)
        assert holder.ended() == 0


def test_a_holder_that_was_stopped_for_less_than_its_ttl_still_holds(client: gripfast.Client, url: str) -> None:
    with Worker("hold.py", url, "job", 30.0) as holder:
        holder.expect("held")
        holder.stop()
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.2)
        holder.say("report")
        holder.go_on()
        lost, held, _ = holder.expect("kept")
        assert (lost, held) == ("False", "True")


def test_a_min_hold_does_not_outlive_the_death_of_its_holder(client: gripfast.Client, url: str) -> None:
    """It binds those who end a lease, and the dead end nothing."""
    with Worker("hold.py", url, "job", 30, 600) as holder:
        holder.expect("held")
        holder.kill()
        with client.lock("job").acquire(wait=AT_ONCE) as lease:
            assert lease.held
