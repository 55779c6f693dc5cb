"""A thread of ours is started or not, wherever an interrupt strikes: also in the middle of the standard library's own
`Thread.start()`, which leaves locks of its own locked there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gripfast
from gripfast import bounded
from gripfast.interrupts.threads import Background
from support.waiting import until

SOURCE = Path(gripfast.__file__).parent
INTERRUPTED = (threading.__file__, *map(str, [SOURCE / "interrupts" / "threads.py", SOURCE / "bounded.py"]))
EVENTS = ("call", "c_call", "c_return", "c_exception", "return")
"""Where CPython looks for signals, and more."""

pytestmark = pytest.mark.timeout(60)


class Interrupt(BaseException):
    """As a signal handler raises it."""


def interrupted(action: Callable[[], object], number: int) -> bool:
    """Whether there was an event of that number, at which it was interrupted."""
    left = number

    def strike(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if event in EVENTS and frame.f_code.co_filename in INTERRUPTED:
            left -= 1
            if left == 0:
                raise Interrupt

    sys.setprofile(strike)
    try:
        action()
    except Interrupt:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0


def everywhere(begin: Callable[[], Callable[[], object]]) -> Iterator[int]:
    """`begin` makes a new action for each event."""
    number = 1
    while interrupted(begin(), number):
        yield number
        number += 1
    assert number > 8, "hardly anything was interrupted"


def half_started() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.ident is None]


def test_a_client_that_was_interrupted_while_it_starts_its_thread_can_be_used() -> None:
    clients: list[gripfast.Client] = []

    def begin() -> Callable[[], object]:
        clients.append(gripfast.connect("memory://"))
        return lambda: clients[-1].lock("a").acquire().release()

    for _ in everywhere(begin):
        with clients[-1].lock("b").acquire(wait=5):
            assert any(thread.name == "gripfast-watchdog" and thread.is_alive() for thread in threading.enumerate())
        clients[-1].close()
        until(lambda: not half_started())
    clients[-1].close()


def test_a_thread_whose_start_was_interrupted_runs_once() -> None:
    runs: list[int] = []
    ends: list[threading.Event] = []
    threads: list[Background] = []

    def begin() -> Callable[[], object]:
        runs.clear()
        ends.append(threading.Event())
        threads.append(Background(lambda: (runs.append(1), ends[-1].wait(5)), "once"))
        return threads[-1].start

    for _ in everywhere(begin):
        threads[-1].start()
        threads[-1].start()
        ends[-1].set()
        threads[-1].join(5)
        assert not threads[-1].is_alive()
        assert runs == [1]
    ends[-1].set()


def test_an_interrupted_call_is_not_made_twice() -> None:
    made: list[int] = []
    calls: bounded.Calls[None] = bounded.Calls(lambda _: None)

    def begin() -> Callable[[], object]:
        made.clear()
        return lambda: calls.run(lambda: made.append(1), 5)

    for _ in everywhere(begin):
        calls.run(lambda: None, 5)
        until(lambda: not half_started())
        assert len(made) <= 1


def test_no_other_thread_can_be_started() -> None:
    """The error reaches the caller, who may try again."""

    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    thread = Background(lambda: None, "later")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_start_new_thread", "_start_joinable_thread"):  # until and since Python 3.13
            if hasattr(threading, name):
                patch.setattr(threading, name, refuses)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            thread.start()
    thread.start()
    thread.join(5)
    assert thread.ident is not None


def test_every_thread_of_ours_is_started_like_this() -> None:
    """Those that end within a call of the same thread, or that take arguments in a program of our own, may be plain."""
    plain = {"testing/clock.py", "testing/conformance/test_races.py", "cli/top/session.py", "contrib/celery.py"}
    found = {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "threading.Thread(" in path.read_text("utf-8")
    }
    assert found == plain
