"""Waiting for a condition: the single place of the tests that polls. No other may sleep, and a test sees to that."""

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Literal, TypeVar

T = TypeVar("T")

PAUSE = 0.005
LONGEST_PAUSE = 0.1
IDLE = 4
"""A costly condition is asked less often: pauses are at least this many times as long as its answer took."""


def until(condition: Callable[[], T | Literal[False] | None], within: float = 5.0) -> T:
    """Return the condition's first true answer; fail when there was none `within` seconds."""
    deadline = (asked := time.monotonic()) + within
    while not (answer := condition()):
        if (answered := time.monotonic()) > deadline:
            raise AssertionError(_complaint(condition, answer, within))
        time.sleep(_pause(answered - asked))
        asked = time.monotonic()
    return answer


async def auntil(condition: Callable[[], Any], within: float = 5.0) -> Any:
    """The same on an event loop; the condition may be a plain or an async function."""
    deadline = (asked := time.monotonic()) + within
    while not (answer := await _ask(condition)):
        if (answered := time.monotonic()) > deadline:
            raise AssertionError(_complaint(condition, answer, within))
        await asyncio.sleep(_pause(answered - asked))
        asked = time.monotonic()
    return answer


def _pause(took: float) -> float:
    return min(max(PAUSE, IDLE * took), LONGEST_PAUSE)


async def _ask(condition: Callable[[], Any]) -> Any:
    answer = condition()
    return await answer if isawaitable(answer) else answer


def _complaint(condition: Callable[[], object], answer: object, within: float) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    return f"{name} was still {answer!r} after {within:g} s"
