"""Whatever an observer does, no lease, no caller and no process waits for it, or hears of it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import gripfast
from api.observer_stage import THREAD, WHOLE, Blocks, Raises, said, threads
from gripfast.machine import boottime
from gripfast.runtime import observers as observers_module
from gripfast.testing.observing import Recorder, broken_stories
from support.waiting import auntil, until

NOT_FOR_EVER = 4.0
"""Seconds, on a busy machine. Who waited for an observer that does not return would not return either."""


@pytest.mark.parametrize("error", [ValueError("planted"), SystemExit(3), KeyboardInterrupt()])
def test_what_an_observer_raises_is_logged_once_and_others_are_told(
    seen: Recorder, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    with gripfast.connect("memory://", observers=[Raises(error), seen]) as client:
        for _ in range(5):
            with client.lock("job"):
                pass
    assert seen.kinds("job") == WHOLE * 5
    (message,) = said(caplog)
    assert "Raises.granted raised an exception, which is ignored" in message
    (record,) = (record for record in caplog.records if record.name == "gripfast.observer")
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_another_exception_is_logged_and_the_same_one_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raises = Raises(ValueError("planted"))
    with gripfast.connect("memory://", observers=[raises]) as client:
        client.lock("job").acquire().release()
        until(lambda: len(said(caplog)) == 1)
        raises.error = KeyError("planted")
        client.lock("job").acquire().release()
        until(lambda: len(said(caplog)) == 2)
        monkeypatch.setattr(observers_module, "QUIET", 0.0)
        client.lock("job").acquire().release()
    assert len(said(caplog)) == 2  # what was logged before the patch stays quiet for as long as it was to


def test_a_log_handler_that_raises_ends_nothing(seen: Recorder) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("planted")

    log, handler = logging.getLogger("gripfast.observer"), Broken()
    log.addHandler(handler)
    try:
        with gripfast.connect("memory://", observers=[Raises(ValueError()), seen]) as client:
            client.lock("job").acquire().release()
    finally:
        log.removeHandler(handler)
    assert seen.kinds("job") == WHOLE


def test_an_observer_that_does_not_return_delays_nothing(blocks: Blocks, caplog: pytest.LogCaptureFixture) -> None:
    reasons: list[str] = []
    with gripfast.connect("memory://", observers=[blocks]) as client:
        first = client.lock("renewed", ttl=1.5).acquire()
        assert blocks.is_busy.wait(5.0)
        started = boottime()
        with client.lock("job"):
            assert client.lock("job").try_acquire() is None
        assert boottime() - started < NOT_FOR_EVER
        lost = client.lock("lost", max_hold=0.02, on_lost=lambda lease, reason: reasons.append(reason)).acquire()
        until(lambda: reasons == ["max_hold"])
        assert not lost.held
        until(lambda: boottime() > started + 2)
        first.release()  # it was renewed
        started = boottime()
    assert boottime() - started < NOT_FOR_EVER
    assert said(caplog) == ["the observers of memory:// are still busy, so they do not get the last events"]


def test_an_observer_that_does_not_return_does_not_stop_an_event_loop(blocks: Blocks) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        never = asyncio.get_running_loop().create_future()
        while True:
            before = boottime()
            await asyncio.wait([never], timeout=0.01)
            assert boottime() - before < NOT_FOR_EVER
            beats += 1

    async def main() -> None:
        heart = asyncio.create_task(beat())
        async with gripfast.connect_async("memory://", observers=[blocks]) as client:
            async with client.lock("job", ttl=1.5) as lease:
                assert await asyncio.to_thread(blocks.is_busy.wait, 5.0)
                before = lease._state.deadline
                await auntil(lambda: lease._state.deadline > before)
        assert beats > 20  # closing takes half a second, in which the loop goes on
        heart.cancel()

    asyncio.run(main())


BLOCKED = """
import asyncio, sys, threading, gripfast
class Blocks(gripfast.Observer):
    def claimed(self, event):
        threading.Event().wait()
lease = None
async def main():
    global lease
    lease = await gripfast.connect_async("memory://", observers=[Blocks()]).lock("job").acquire()
if sys.argv[1] == "blocking":
    lease = gripfast.connect("memory://", observers=[Blocks()]).lock("job").acquire()
else:
    asyncio.run(main())
print("end", flush=True)
"""


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_process_ends_although_its_observer_does_not_return(colour: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", BLOCKED, colour]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"end\n"
        started = boottime()
        _, errors = process.communicate(timeout=30)
    assert boottime() - started < 5.0
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors


TELLS_THE_REST = """
import gripfast
class Prints(gripfast.Observer):
    def released(self, event):
        print(event.name, event.reason)
lease = gripfast.connect("memory://", observers=[Prints()]).lock("job").acquire()
"""


def test_what_is_held_at_the_end_of_the_process_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", TELLS_THE_REST]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ended.stdout == "job closed\n"


def test_when_too_many_events_wait_whole_claims_are_left_out(
    blocks: Blocks, seen: Recorder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers_module, "LIMIT", 20)
    monkeypatch.setattr(observers_module, "LAST_WORDS", 10.0)
    with gripfast.connect("memory://", observers=[blocks, seen]) as client:
        kept = client.lock("kept").acquire()
        assert blocks.is_busy.wait(5.0)
        for _ in range(100):
            with client.lock("job"):
                pass
        kept.release()
        runtime: Any = client._runtime
        assert runtime._observers._ticker.queue.qsize() < 30
        assert said(caplog) == []  # nobody but the observers' own thread waits for a handler of the log
        blocks.over.set()
        until(lambda: len(said(caplog)) == 1)
        assert "events were left out, because the observers of memory:// are too slow" in said(caplog)[0]
        until(lambda: runtime._observers._ticker.queue.qsize() == 0)
        with client.lock("afterwards"):
            pass
    assert broken_stories(seen.events) == []
    assert seen.kinds("kept") == seen.kinds("afterwards") == WHOLE
    assert 1 <= len(seen.of("job", "claimed")) < 20


def test_an_observer_may_use_the_client_and_is_not_told_of_that(seen: Recorder) -> None:
    class Uses(gripfast.Observer):
        tokens: list[int] = []  # noqa: RUF012 - of one test

        def granted(self, event: gripfast.Event) -> None:
            with client.lock("its own").acquire(wait=5) as lease:
                self.tokens.append(lease.token)

    with gripfast.connect("memory://", observers=[Uses(), seen]) as client:
        with client.lock("job") as lease:
            until(lambda: seen.kinds("job") == WHOLE[:2])
            assert lease.held
    assert len(Uses.tokens) == 1
    assert {event.name for event in seen.events} == {"job"}


def test_an_observer_may_close_the_client(seen: Recorder) -> None:
    class Closes(gripfast.Observer):
        def lost(self, event: gripfast.Event) -> None:
            client.close()

    client = gripfast.connect("memory://", observers=[seen, Closes()])
    other = client.lock("other").acquire()
    lease = client.lock("job", max_hold=0.02).acquire()
    until(lambda: not other.held)
    assert not lease.held
    until(lambda: threads() == [])
    assert broken_stories(seen.events) == []


def test_without_a_thread_locks_work_and_events_wait(
    seen: Recorder, observed: gripfast.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == THREAD:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            observed.lock("job").acquire().release()
    assert len(said(caplog)) == 1
    assert "can't start the thread for the observers" in said(caplog)[0]
    assert seen.events == []
    observed.lock("job").acquire().release()
    until(lambda: seen.kinds("job") == WHOLE * 4)
