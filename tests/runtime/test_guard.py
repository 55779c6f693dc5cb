"""`Guard.run_if_free`: what somebody has to do, one thread at a time, and nobody waits for it."""

import threading

import pytest

from gripfast.interrupts.guard import Guard


def test_while_another_thread_is_in_it_nothing_happens() -> None:
    guard, calls = Guard(), list[str]()
    is_in, may_leave = threading.Event(), threading.Event()

    def first() -> None:
        is_in.set()
        may_leave.wait(10)
        calls.append("first")

    thread = threading.Thread(target=guard.run_if_free, args=[first])
    thread.start()
    assert is_in.wait(10)
    guard.run_if_free(lambda: calls.append("second"))
    may_leave.set()
    thread.join(10)
    assert calls == ["first"]
    guard.run_if_free(lambda: calls.append("third"))
    assert calls == ["first", "third"]


def test_nothing_happens_within_itself() -> None:
    guard, calls = Guard(), list[str]()

    def outer() -> None:
        calls.append("outer")
        guard.run_if_free(lambda: calls.append("inner"))

    guard.run_if_free(outer)
    assert calls == ["outer"]


def test_what_raises_leaves_it_free() -> None:
    guard, calls = Guard(), list[str]()

    def broken() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.run_if_free(broken)
    guard.run_if_free(lambda: calls.append("next"))
    assert calls == ["next"]
