"""What both locks share with threading's: arguments, answers, errors, and the block."""

import contextlib
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gripfast
from gripfast.compat.threading import Lock, RLock
from gripfast.testing.waiters import waiters_among, watch_for_waiters
from support.waiting import until

Kind = Callable[..., Any]
"""Lock or RLock: the standard library names only its own where these do as well."""
kinds = pytest.mark.parametrize("kind", [Lock, RLock])
STANDARD: dict[Kind, Callable[[], Any]] = {Lock: threading.Lock, RLock: threading.RLock}


def outcome(call: Callable[[], object]) -> object:
    """The answer, or the type of the error."""
    try:
        return call()
    except Exception as error:
        return type(error)


@kinds
@pytest.mark.parametrize(
    ("blocking", "timeout"),
    [
        (True, -1),
        (True, -1.0),
        (True, 0),
        (True, 0.5),
        (1, 2),
        (True, threading.TIMEOUT_MAX),
        (True, threading.TIMEOUT_MAX * 2),
        (True, math.inf),
        (True, math.nan),
        (True, -2),
        (True, -0.5),
        (True, None),
        (True, "1"),
        (False, -1),
        (0, -1),
        (False, 0),
        (False, 1),
    ],
)
def test_arguments_are_taken_and_refused_as_threading_does(
    client: gripfast.Client, kind: Kind, blocking: Any, timeout: Any
) -> None:
    standard, ours = STANDARD[kind](), kind(client, "job")
    expected = outcome(lambda: standard.acquire(blocking, timeout))
    assert outcome(lambda: ours.acquire(blocking, timeout)) == expected
    if expected is True:
        ours.release()


@kinds
def test_releasing_what_is_not_held_is_a_runtime_error(client: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    with pytest.raises(RuntimeError):
        ours.release()
    ours.acquire()
    ours.release()
    with pytest.raises(RuntimeError):
        ours.release()


@kinds
def test_it_is_the_lock_that_everyone_else_sees(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job", label="compat", ttl=10)
    assert ours.acquire()
    assert (info := other.inspect("job")) is not None
    assert info.label == "compat"
    assert other.lock("job").try_acquire() is None
    ours.release()
    assert other.inspect("job") is None


@kinds
def test_a_lock_that_someone_else_has_is_not_had(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    with other.lock("job"):
        assert ours.acquire(blocking=False) is False
        assert ours.acquire(timeout=0.01) is False
        assert ours.acquire(timeout=0) is False
        with pytest.raises(RuntimeError):
            ours.release()
    assert ours.acquire(blocking=False) is True
    ours.release()


def waits(client: gripfast.Client) -> bool:
    if not client.capabilities.waiters_seen:
        return waiters_among([client], "job") == 1
    info = client.inspect("job")
    return info is not None and info.waiters == 1


@kinds
def test_waiting_ends_when_the_other_lets_go(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    theirs = other.lock("job").acquire()
    watch_for_waiters(client)

    def wait_and_release() -> bool:
        answer = ours.acquire()
        ours.release()
        return answer

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_and_release)
        until(lambda: waits(client))
        theirs.release()
        assert waiting.result(timeout=5) is True


@kinds
def test_locked_tells_whether_anyone_has_it(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    assert not ours.locked()
    with other.lock("job"):
        assert ours.locked()
    with ours:
        assert ours.locked()
    assert not ours.locked()


@kinds
def test_a_block_has_it_and_gives_it_back(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    with ours as answer:
        assert answer is True
        assert other.inspect("job")
    assert other.inspect("job") is None


@kinds
def test_a_block_that_fails_gives_it_back(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    with pytest.raises(ZeroDivisionError):
        with kind(client, "job"):
            _ = 1 / 0
    assert other.inspect("job") is None


@kinds
def test_an_exit_stack_enters_and_leaves_it(client: gripfast.Client, other: gripfast.Client, kind: Kind) -> None:
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(kind(client, "job"))
        assert other.inspect("job")
    assert other.inspect("job") is None


@kinds
def test_it_may_be_acquired_by_hand_and_left_as_a_block(
    client: gripfast.Client, other: gripfast.Client, kind: Kind
) -> None:
    ours = kind(client, "job")
    ours.acquire()
    ours.__exit__(None, None, None)
    assert other.inspect("job") is None


@kinds
def test_a_lock_released_inside_its_block_is_not_there_to_be_left(client: gripfast.Client, kind: Kind) -> None:
    ours = kind(client, "job")
    with pytest.raises(RuntimeError):
        with ours:
            ours.release()


@kinds
def test_one_at_a_time_and_nobody_is_left_out(client: gripfast.Client, kind: Kind) -> None:
    ours, inside, most = kind(client, "job"), list[None](), list[int]()

    def work() -> None:
        for _ in range(5):
            with ours:
                inside.append(None)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result(timeout=30)
    assert most == [1] * 20


@kinds
def test_an_engine_that_cannot_be_asked_is_an_error_and_never_a_no(unreachable: str, kind: Kind) -> None:
    with gripfast.connect(unreachable) as client:
        ours = kind(client, "job")
        for attempt in (lambda: ours.acquire(blocking=False), lambda: ours.acquire(timeout=0.01), ours.acquire):
            with pytest.raises(gripfast.StoreUnavailable):
                attempt()
        with pytest.raises(RuntimeError):
            ours.release()


@kinds
def test_a_lock_object_that_is_dropped_gives_back_what_it_has(
    client: gripfast.Client, other: gripfast.Client, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    ours = kind(client, "job")
    ours.acquire()
    del ours
    until(lambda: other.inspect("job") is None)
    until(lambda: "lease on 'job' was dropped" in caplog.text)


@kinds
def test_a_block_that_an_interrupt_has_dropped_is_no_mistake(
    client: gripfast.Client, other: gripfast.Client, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    ours = kind(client, "job")
    leave = ours.__exit__  # as a `with` statement looks it up
    ours.__enter__()
    del leave
    until(lambda: other.inspect("job") is None)
    assert "dropped" not in caplog.text


@kinds
def test_re_entry_is_not_a_setting(client: gripfast.Client, kind: Kind) -> None:
    with pytest.raises(TypeError, match="reentrant"):
        kind(client, "job", reentrant=True)


@kinds
def test_bad_settings_are_refused_when_it_is_made(client: gripfast.Client, kind: Kind) -> None:
    with pytest.raises(gripfast.ConfigurationError):
        kind(client, "job", ttl=0)
    with pytest.raises(gripfast.ConfigurationError):
        kind(client, "")


@kinds
def test_its_repr_tells_what_it_is(client: gripfast.Client, kind: Kind) -> None:
    assert f"compat.threading.{kind.__name__} 'job'" in repr(kind(client, "job"))
