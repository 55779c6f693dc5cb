"""The helpers that all other tests wait with."""

import asyncio
from itertools import count

import pytest

from support.waiting import auntil, until


def test_until_gives_back_the_first_true_answer() -> None:
    numbers = count()
    assert until(lambda: next(numbers) // 3) == 1


def test_until_fails_once_its_time_is_over_and_says_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"was still \[\] after 0\.01 s"):
        until(list, within=0.01)


def test_auntil_asks_plain_and_async_conditions() -> None:
    numbers = count()

    async def third() -> int:
        return next(numbers) // 3

    async def both() -> tuple[int, int]:
        return await auntil(third), await auntil(lambda: next(numbers) // 6)

    assert asyncio.run(both()) == (1, 1)


def test_auntil_fails_once_its_time_is_over() -> None:
    with pytest.raises(AssertionError, match="was still None after"):
        asyncio.run(auntil(lambda: None, within=0.01))
