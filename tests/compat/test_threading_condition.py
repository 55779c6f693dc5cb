"""threading.Condition, and queue.Queue which is made of three of them, over a Gripfast lock."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gripfast
from gripfast.compat.threading import Lock, RLock
from support.waiting import until

kinds = pytest.mark.parametrize("kind", [Lock, RLock])


def waiters(condition: threading.Condition) -> int:
    return len(condition._waiters)  # type: ignore[attr-defined]


@kinds
def test_a_waiting_thread_is_woken_and_has_the_lock_again(
    client: gripfast.Client, other: gripfast.Client, kind: Any
) -> None:
    condition, ready = threading.Condition(kind(client, "job")), list[None]()

    def consume() -> bool:
        with condition:
            condition.wait_for(lambda: ready, timeout=10)
            return other.inspect("job") is not None

    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(consume)
        until(lambda: waiters(condition) == 1)
        with condition:
            ready.append(None)
            condition.notify()
        assert consumer.result(timeout=10) is True
    assert other.inspect("job") is None


@kinds
def test_the_lock_is_free_for_everyone_while_a_thread_waits(
    client: gripfast.Client, other: gripfast.Client, kind: Any
) -> None:
    condition = threading.Condition(kind(client, "job"))

    def wait() -> bool:
        with condition:
            return condition.wait(timeout=10)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        until(lambda: waiters(condition) == 1)
        other.lock("job").acquire(wait=5).release()
        with condition:
            condition.notify_all()
        assert waiting.result(timeout=10)


@kinds
def test_a_wait_that_is_over_in_time_has_the_lock_again(
    client: gripfast.Client, other: gripfast.Client, kind: Any
) -> None:
    condition = threading.Condition(kind(client, "job"))
    with condition:
        assert condition.wait(timeout=0.01) is False
        assert other.inspect("job")
    assert other.inspect("job") is None


@kinds
def test_who_does_not_have_the_lock_may_neither_wait_nor_notify(client: gripfast.Client, kind: Any) -> None:
    condition = threading.Condition(kind(client, "job"))
    with pytest.raises(RuntimeError, match="un-acquired"):
        condition.wait(timeout=0)
    with pytest.raises(RuntimeError, match="un-acquired"):
        condition.notify()


@kinds
def test_that_another_process_has_it_does_not_count(client: gripfast.Client, other: gripfast.Client, kind: Any) -> None:
    condition = threading.Condition(kind(client, "job"))
    with other.lock("job"), pytest.raises(RuntimeError, match="un-acquired"):
        condition.notify()


@kinds
def test_who_lost_the_lock_is_told_and_leaves_no_waiter_behind(
    client: gripfast.Client, other: gripfast.Client, kind: Any
) -> None:
    ours = kind(client, "job", ttl=0.05, renew=False)
    condition = threading.Condition(ours)
    with pytest.raises(gripfast.LeaseLost), condition:
        until(lambda: not ours.locked())
        with pytest.raises(gripfast.LeaseLost):
            condition.notify()
        condition.wait(timeout=0)
    assert waiters(condition) == 0


@kinds
def test_an_engine_that_went_away_during_the_wait_is_what_comes_out(
    client: gripfast.Client, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = kind(client, "job")
    condition = threading.Condition(ours)

    def unavailable(*_: object) -> Any:
        raise gripfast.StoreUnavailable("gone")

    with pytest.raises(gripfast.StoreUnavailable), condition:
        monkeypatch.setattr(ours._lock, "acquire", unavailable)
        condition.wait(timeout=0)


def test_a_wait_gives_up_all_levels_of_an_rlock_and_takes_them_again(
    client: gripfast.Client, other: gripfast.Client
) -> None:
    ours: Any = RLock(client, "job")
    condition = threading.Condition(ours)

    def wait_three_levels_deep() -> list[bool]:
        with condition, ours:
            ours.acquire()
            condition.wait(timeout=10)
            seen = [other.inspect("job") is not None]
            ours.release()
            seen.append(other.inspect("job") is not None)
        return seen

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_three_levels_deep)
        until(lambda: waiters(condition) == 1)
        with condition:
            condition.notify()
        assert waiting.result(timeout=10) == [True, True]
    assert other.inspect("job") is None


@kinds
def test_a_queue_is_passed_through(client: gripfast.Client, kind: Any) -> None:
    line: queue.Queue[int] = queue.Queue(maxsize=2)
    line.mutex = kind(client, "queue")
    line.not_empty, line.not_full, line.all_tasks_done = (threading.Condition(line.mutex) for _ in range(3))

    def consume() -> list[int]:
        got = []
        for _ in range(10):
            got.append(line.get(timeout=10))
            line.task_done()
        return got

    with ThreadPoolExecutor(2) as pool:
        consumers = [pool.submit(consume), pool.submit(consume)]
        for number in range(20):
            line.put(number, timeout=10)
        line.join()
        assert sorted(number for consumer in consumers for number in consumer.result(timeout=10)) == list(range(20))
