"""Uses that only a hostile reader thinks of: what they break is told, and nothing else breaks with it."""

from __future__ import annotations

import asyncio
import functools
import logging
import pickle
import subprocess
import sys
import threading

import pytest

import gripfast
from gripfast.machine import boottime
from support.both_colours import staged
from support.redis_server import lock_space
from support.waiting import auntil, until


@staged
async def test_an_attempt_is_good_for_one_lease() -> None:
    async with gripfast.connect_async("memory://") as client:
        attempt = client.lock("job").acquire()
        lease = await attempt
        with pytest.raises(RuntimeError, match="acquire\\(\\) of the lock 'job' was used before: call it again"):
            await attempt
        with pytest.raises(RuntimeError, match="was used before"):
            async with attempt:
                raise AssertionError("entered")
        await lease.release()


@staged
async def test_a_task_of_an_attempt_can_be_described() -> None:
    async with gripfast.connect_async("memory://") as client:
        task = asyncio.ensure_future(client.lock("job").acquire())
        assert "Task" in repr(task)
        lease = await task
        assert "Task" in repr(task)
        await lease.release()


@staged
async def test_on_lost_runs_in_nobodys_context() -> None:
    seen: list[str] = []

    async def on_lost(lease: gripfast.AsyncLease, reason: gripfast.Reason) -> None:
        try:
            seen.append(gripfast.current_lease().name)
        except gripfast.ConfigurationError as error:
            seen.append(str(error))

    async with gripfast.connect_async("memory://") as client:
        lost = await client.lock("lost", ttl=0.2, renew=False, on_lost=on_lost).acquire()

        @client.locked("outer")
        async def outer() -> None:
            async with client.lock("inner"):
                await auntil(lambda: seen)

        await outer()
        assert not lost.held
    assert "outer" not in seen[0]
    assert "has ended" not in seen[0]


def test_a_slow_handler_of_the_log_costs_no_lease() -> None:
    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "was dropped" in record.getMessage():
                slow.append(None)
                goes_on.wait(10.0)

    slow: list[None] = []
    goes_on = threading.Event()
    log, handler = logging.getLogger("gripfast.lease"), Slow()
    log.addHandler(handler)
    try:
        with gripfast.connect("memory://") as client:
            kept = client.lock("kept", ttl=1.0).acquire()
            client.lock("dropped").acquire()
            until(lambda: slow)
            begun = boottime()
            until(lambda: boottime() > begun + 1.3)  # longer than it lasts if nobody renews it
            kept.ensure_held()
    finally:
        goes_on.set()
        log.removeHandler(handler)


BLOCKED = """
import sys, threading, gripfast
class Blocks(gripfast.Observer):
    def granted(self, event): threading.Event().wait()
clients = [gripfast.connect(sys.argv[1], observers=[Blocks()]) for _ in range(8)]
leases = [client.lock(f"job-{number}").acquire() for number, client in enumerate(clients)]
"""


def test_observers_that_block_leave_no_lock_behind_at_the_end() -> None:
    with lock_space("hostile:") as url:
        subprocess.run([sys.executable, "-c", BLOCKED, url], check=True, timeout=30)
        with gripfast.connect(url) as client:
            assert [each.name for each in client.list("job-")] == []


def test_a_time_out_that_was_carried_as_json_still_has_words() -> None:
    """Celery's results keep the arguments of an error, as texts where JSON has nothing better."""
    error = gripfast.LockTimeout("job", 2.0, "LockInfo(name='job', …)")
    assert str(error) == "lock 'job' not acquired in 2 s: held, but the holder is unknown"
    assert error.holder is None


def test_a_loss_without_a_note_is_pickled_as_before() -> None:
    assert len(gripfast.LeaseLost("job", "taken").args) == 3
    noted = pickle.loads(pickle.dumps(gripfast.LeaseLost("job", "broken", note="by hand")))
    assert (noted.reason, noted.note) == ("broken", "by hand")


def test_what_a_lock_does_not_have_can_not_be_set() -> None:
    with gripfast.connect("memory://") as client:
        with pytest.raises(TypeError, match="wait=5"):
            client.lock("job").timeout = 10  # type: ignore[attr-defined]


def test_a_class_that_is_called_with_keywords_says_how_to_make_one() -> None:
    with pytest.raises(TypeError, match=r"gripfast\.lock"):
        gripfast.Lock("job", timeout=5)  # type: ignore[arg-type, call-arg]


def test_the_package_has_no_lock_that_is_not_its_own() -> None:
    """`gripfast.RLock("job")` was the interpreter's: it locked nothing that others see."""
    assert not hasattr(gripfast, "RLock")
    with pytest.raises(AttributeError, match=r"has no attribute 'RLock': write gripfast\.lock\(name, reentrant=True\)"):
        gripfast.RLock("job")  # type: ignore[attr-defined]


def test_what_has_no_name_of_its_own_is_described() -> None:
    async def job() -> None: ...

    with gripfast.connect("memory://") as client:
        with pytest.raises(gripfast.ConfigurationError, match=r"functools\.partial"):
            client.locked("job:{number}")(functools.partial(print, 1))
