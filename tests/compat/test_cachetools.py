"""cachetools takes our locks where it takes threading's: `lock=` and `condition=`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cachetools
import pytest

import gripfast
from gripfast.compat.threading import Lock, RLock

kinds = pytest.mark.parametrize("kind", [Lock, RLock])


@kinds
def test_a_cached_function_is_locked_by_us(client: gripfast.Client, kind: type[Lock]) -> None:
    calls = []

    @cachetools.cached(cachetools.LRUCache(10), lock=kind(client, "cache"))
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(double, number % 3) for number in range(30)]
        assert [answer.result(timeout=10) for answer in answers] == [2 * (number % 3) for number in range(30)]
    assert set(calls) == {0, 1, 2}


@kinds
def test_a_condition_of_ours_keeps_a_cache_from_computing_twice(client: gripfast.Client, kind: Any) -> None:
    calls = []

    @cachetools.cached({}, condition=threading.Condition(kind(client, "cache")))
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(double, 7) for _ in range(12)]
        assert {answer.result(timeout=10) for answer in answers} == {14}
    assert calls == [7]
