"""Waits that are over before they have begun, or that a signal interrupts, end.

`queue.SimpleQueue.get(timeout=…)` of CPython 3.11 does not: found by an `acquire(wait=0.001)` that waited for minutes.
"""

import ast
import math
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import gripfast
from gripfast.machine import boottime
from gripfast.runtime.ticker import Ticker
from gripfast.timed_queue import TimedQueue, next_in_own_thread
from quality.tree import ROOT, broken, parsed, python_files
from support.waiting import until

SOON = 20.0
TRIES = 3000
"""With the queue, one of the first 1,000 hung."""


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()


def fails(get: Callable[[float], object], seconds: float) -> None:
    with pytest.raises(queue.Empty):
        get(seconds)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 1e-5])
def test_a_wait_at_a_new_queue_ends(seconds: float) -> None:
    in_a_thread(lambda: [fails(TimedQueue[int]().get, seconds) for _ in range(TRIES)])


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 1e-5])
def test_a_wait_of_a_thread_of_ours_ends(seconds: float) -> None:
    def wait() -> None:
        new: queue.SimpleQueue[int] = queue.SimpleQueue()
        fails(lambda seconds: next_in_own_thread(new, seconds), seconds)

    in_a_thread(lambda: [wait() for _ in range(TRIES)])


def test_a_wait_for_a_lock_ends() -> None:
    with gripfast.connect("memory://") as client, client.lock("x").acquire():

        def wait() -> None:
            with pytest.raises(gripfast.LockTimeout):
                client.lock("x").acquire(wait=1e-6)

        in_a_thread(lambda: [wait() for _ in range(TRIES)])


@pytest.fixture
def slow_handler() -> Iterator[None]:
    """It is still at work when the wait that it interrupted is over."""

    def handle(*_: object) -> None:
        ends = boottime() + 0.1
        until(lambda: boottime() > ends)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_wait_that_a_signal_interrupts_ends(slow_handler: None) -> None:
    timed: TimedQueue[int] = TimedQueue()
    release = threading.Timer(SOON, timed.put, [1])  # the test must not hang, either
    release.daemon = True
    release.start()
    started = time.monotonic()
    fails(timed.get, 0.05)
    release.cancel()
    assert time.monotonic() - started < SOON / 2


def test_signals_reach_a_thread_of_ours_unless_it_waits() -> None:
    """A program that it starts inherits which ones are blocked."""
    blocked: list[set[int | signal.Signals]] = []

    def work(_: object) -> float:
        blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return math.inf

    ticker: Ticker[None] = Ticker("ticker", work)
    ticker.start()
    ticker.wake()
    until(lambda: len(blocked) > 1)
    ticker.stop()
    assert ticker.join(SOON)
    assert blocked[0] == blocked[1] == signal.pthread_sigmask(signal.SIG_BLOCK, [])


GEVENT = """
import gevent.monkey; gevent.monkey.patch_all()
import gevent, gripfast, signal
with gripfast.connect("memory://") as client, client.lock("x").acquire():
    gevent.idle()  # until all others wait
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_signals_reach_a_program_on_gevent() -> None:
    """Its threads are none: what one of them blocks is blocked for the whole program."""
    pytest.importorskip("gevent")
    ran = subprocess.run([sys.executable, "-c", GEVENT], capture_output=True, text=True, timeout=SOON, check=True)
    assert ran.stdout == "set()\n"


def test_what_comes_wakes_the_reader() -> None:
    timed: TimedQueue[int] = TimedQueue()
    got: list[int] = []
    reader = threading.Thread(target=lambda: got.extend(timed.get(SOON) for _ in range(TRIES)))
    reader.start()
    for number in range(TRIES):
        timed.put(number)
    reader.join(SOON)
    assert got == list(range(TRIES))


# Nothing else waits so ------------------------------------------------------------------------------------------------

THE_ONE_PLACE = ROOT / "src" / "gripfast" / "timed_queue.py"


def timed_gets(tree: ast.Module) -> list[str]:
    """In a module that has a SimpleQueue: `get(timeout=…)`, or `get(True, …)`."""
    if not any("SimpleQueue" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(tree)):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".get")]
    return [f"line {call.lineno}" for call in calls if call.keywords or ast.unparse(call).count(".get(True,")]


def test_no_queue_is_read_with_a_time_out() -> None:
    checked = [path for path in python_files("src", "lab") if path != THE_ONE_PLACE]
    assert timed_gets(parsed(THE_ONE_PLACE))
    assert broken(checked, lambda path: timed_gets(parsed(path))) == []
