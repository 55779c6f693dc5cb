"""Who may release, and who may enter twice."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import gripfast
from gripfast.compat.threading import Lock, RLock
from support.waiting import until


@pytest.fixture
def another_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_any_thread_may_release_a_lock(client: gripfast.Client, another_thread: ThreadPoolExecutor) -> None:
    ours = Lock(client, "job")
    ours.acquire()
    another_thread.submit(ours.release).result(timeout=5)
    assert not ours.locked()


def test_a_lock_is_not_entered_twice(client: gripfast.Client) -> None:
    with Lock(client, "job") as _, pytest.raises(RuntimeError):
        again = Lock(client, "job")
        assert again.acquire(blocking=False) is False
        again.release()


def test_the_same_lock_object_is_not_entered_twice_either(client: gripfast.Client) -> None:
    ours = Lock(client, "job")
    with ours:
        assert ours.acquire(blocking=False) is False
        assert ours.acquire(timeout=0.01) is False
    assert not ours.locked()


def test_an_rlock_is_entered_as_often_as_its_thread_likes(client: gripfast.Client, other: gripfast.Client) -> None:
    ours = RLock(client, "job")
    with ours:
        token = other.inspect("job").token
        assert ours.acquire(blocking=False)
        assert ours.acquire(timeout=1)
        with ours:
            assert other.inspect("job").token == token
        ours.release()
        ours.release()
        assert other.inspect("job").token == token
    assert other.inspect("job") is None


def test_another_thread_does_not_enter_an_rlock(client: gripfast.Client, another_thread: ThreadPoolExecutor) -> None:
    ours = RLock(client, "job")
    with ours:
        assert another_thread.submit(ours.acquire, False).result(timeout=5) is False


def test_another_thread_does_not_release_an_rlock(client: gripfast.Client, another_thread: ThreadPoolExecutor) -> None:
    ours = RLock(client, "job")
    with ours:
        with pytest.raises(RuntimeError, match="un-acquired"):
            another_thread.submit(ours.release).result(timeout=5)
        assert ours.locked()


def test_a_lost_rlock_lets_nobody_in_by_re_entry(client: gripfast.Client, other: gripfast.Client) -> None:
    ours = RLock(client, "job", ttl=0.05, renew=False)
    with pytest.raises(gripfast.LeaseLost), ours:
        until(lambda: not ours.locked())
        with other.lock("job"):
            assert ours.acquire(blocking=False) is False


def test_a_thread_that_ends_gives_its_rlock_back(
    client: gripfast.Client, other: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    ours = RLock(client, "job")
    thread = threading.Thread(target=ours.acquire)
    thread.start()
    thread.join()
    until(lambda: other.inspect("job") is None)
    until(lambda: "lease on 'job' was dropped" in caplog.text)
