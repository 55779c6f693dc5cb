"""Fork: the child owns nothing, the parent loses nothing, and an inherited client works anew."""

import gc
import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast import LeaseLost
from gripfast.testing.colours import renewal_of
from gripfast.testing.fixtures import T, needs
from gripfast.testing.waiting import until


def forks(test: T) -> T:
    """The test forks, beside threads; not by `pytestmark`, which would be that of whoever imports it."""
    quiet = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")(quiet(test))
    return test


def in_a_child(answer: Callable[[], Any], within: float = 20.0) -> Any:
    """Ask a forked child; an error there is its answer."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        _answer_and_vanish(answer, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], within)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        with os.fdopen(reading, "rb") as told:
            text = told.read()
    finally:
        os.waitpid(pid, 0)
    assert text, "the child hung or died without an answer"
    return json.loads(text)


def _answer_and_vanish(answer: Callable[[], Any], writing: int) -> None:
    try:
        try:
            told = answer()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(told).encode())
    finally:
        os._exit(0)


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as client:
        yield client


@forks
def test_the_child_of_a_holder_owns_nothing(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)

    def look() -> Any:
        try:
            lease.ensure_held()
        except LeaseLost as error:
            return [lease.held, lease.remaining(), error.reason]
        return "it ensured the child of its hold"

    assert in_a_child(look) == [False, 0.0, "session"]
    assert lease.held


@forks
def test_a_release_in_the_child_does_nothing(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)
    assert in_a_child(lambda: lease.release()) is None
    assert lease.held
    info = client.inspect("job")
    assert info is not None
    assert info.owner == lease.owner


@forks
def test_leaving_an_inherited_with_block_in_the_child_frees_nothing(client: gripfast.Client) -> None:
    def leave(lock: Any) -> None:
        lock.__exit__(None, None, None)

    lock = client.lock("job")
    with lock as lease:
        in_a_child(lambda: leave(lock))
        lease.ensure_held()
        assert client.inspect("job") is not None


@forks
def test_an_inherited_client_works_anew_in_the_child(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)

    def work() -> Any:
        with client.lock("other job", ttl=1).acquire(wait=5) as anew:
            until(renewal_of(anew))  # by a watchdog of the child's own
            info = client.inspect("other job")
            return [anew.held, info is not None and info.pid == os.getpid()]

    assert in_a_child(work) == [True, True]
    assert lease.held


@forks
def test_an_inherited_lock_works_anew_in_the_child(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    with lock:
        pass

    def work() -> Any:
        with lock as lease:
            return lease.held

    assert in_a_child(work) is True


@needs("processes")
@forks
def test_the_child_is_excluded_by_its_parent(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    lease = lock.acquire(wait=5)
    assert in_a_child(lambda: lock.try_acquire() is None) is True
    lease.release()
    assert in_a_child(lambda: lock.try_acquire() is not None) is True


@needs("processes", "waiters_seen")
@forks
def test_the_child_waits_for_its_parent(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        _answer_and_vanish(lambda: client.lock("job").acquire(wait=10).token, writing)
    os.close(writing)
    until(lambda: client.inspect("job").waiters == 1)  # type: ignore[union-attr]
    lease.release()
    with os.fdopen(reading, "rb") as told:
        assert json.loads(told.read()) > lease.token
    os.waitpid(pid, 0)


@forks
def test_the_parents_lease_is_renewed_beyond_the_childs_exit(client: gripfast.Client) -> None:
    lease = client.lock("job", ttl=1).acquire(wait=5)
    assert in_a_child(lambda: "hello") == "hello"
    until(renewal_of(lease))
    lease.ensure_held()
    info = client.inspect("job")
    assert info is not None
    assert info.owner == lease.owner


@forks
def test_collecting_garbage_in_the_child_frees_nothing(client: gripfast.Client) -> None:
    leases = [client.lock("job").acquire(wait=5)]

    def forget() -> str:
        leases.clear()
        gc.collect()
        return "forgotten"

    assert in_a_child(forget) == "forgotten"
    assert client.inspect("job") is not None
    assert leases[0].held


@forks
def test_closing_an_inherited_client_in_the_child_frees_nothing(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)
    in_a_child(lambda: client.close())
    assert lease.held
    assert client.inspect("job") is not None
    client.lock("other job").acquire(wait=1).release()


@forks
def test_an_inherited_loss_is_not_waited_for_in_the_child(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire(wait=5)
    assert in_a_child(lambda: [lease.lost.is_set(), lease.lost.wait(5)]) == [True, True]
    assert not lease.lost.is_set()
