"""Waiting for a condition: the single place of the tests that polls. No other may sleep, and a test sees to that."""

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Literal, TypeVar

T = TypeVar("T")

PAUSE = 0.005


def until(condition: Callable[[], T | Literal[False] | None], within: float = 5.0) -> T:
    """Return the condition's first true answer; fail when there was none `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(condition, answer, within))
        time.sleep(PAUSE)
    return answer


async def auntil(condition: Callable[[], Any], within: float = 5.0) -> Any:
    """The same on an event loop; the condition may be a plain or an async function."""
    deadline = time.monotonic() + within
    while not (answer := await _ask(condition)):
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(condition, answer, within))
        await asyncio.sleep(PAUSE)
    return answer


async def _ask(condition: Callable[[], Any]) -> Any:
    answer = condition()
    return await answer if isawaitable(answer) else answer


def _complaint(condition: Callable[[], object], answer: object, within: float) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    return f"{name} was still {answer!r} after {within:g} s"
