"""Where the lease of a `with` block lives."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

import gripfast
from gripfast.interrupts.scope import by_hand
from support.waiting import until


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


def entries(lock: gripfast.Lock) -> int:
    """By hand, and not left."""
    return sum(len(each) for each in by_hand(lock)._all)


def test_the_lease_of_a_block_is_known_to_nobody_but_the_block(client: gripfast.Client) -> None:
    lock = client.lock("job")
    with lock:
        assert entries(lock) == 0
        assert client.inspect("job") is not None
    assert client.inspect("job") is None


def test_nested_blocks_of_a_reentrant_lock_leave_one_by_one(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    with lock as outer:
        with lock as inner:
            assert inner.token == outer.token
            assert inner is not outer
        assert client.inspect("job") is not None
    assert client.inspect("job") is None


def test_an_exit_stack_enters_and_leaves_it(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(lock)
        second = stack.enter_context(lock)
        assert first.token == second.token
        assert entries(lock) == 2
    assert client.inspect("job") is None
    assert entries(lock) == 0


def test_entered_by_hand_it_is_left_by_hand(client: gripfast.Client) -> None:
    lock = client.lock("job")
    lock.__enter__()
    gc.collect()
    assert client.inspect("job") is not None
    lock.__exit__(None, None, None)
    assert client.inspect("job") is None


def test_leaving_what_was_never_entered_is_an_error(client: gripfast.Client) -> None:
    with pytest.raises(RuntimeError, match="not entered"):
        client.lock("job").__exit__(None, None, None)


def test_a_block_inside_a_lock_entered_by_hand_does_not_leave_that_one(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    lock.__enter__()
    with lock:
        pass
    assert client.inspect("job") is not None
    lock.__exit__(None, None, None)
    assert client.inspect("job") is None


def test_a_thread_that_ends_without_leaving_gives_back_what_it_entered_by_hand(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lock = client.lock("job")
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    until(lambda: client.inspect("job") is None)
    until(lambda: "lease on 'job' was dropped" in caplog.text)


def test_a_generator_that_is_dropped_inside_the_block_gives_the_lock_back(client: gripfast.Client) -> None:
    def work() -> Iterator[None]:
        with client.lock("job"):
            yield

    running = work()
    next(running)
    assert client.inspect("job") is not None
    del running
    until(lambda: client.inspect("job") is None)
