"""One step runs a recipe whose ports block; one that suspends is a bug that shows."""

from __future__ import annotations

import asyncio

import pytest

from gripfast.runtime.blocking import drive


def test_a_recipe_that_never_suspends_runs_to_its_end() -> None:
    async def recipe() -> int:
        return 7

    assert drive(recipe()) == 7


def test_what_a_recipe_raises_comes_out() -> None:
    async def recipe() -> int:
        raise LookupError("planted")

    with pytest.raises(LookupError, match="planted"):
        drive(recipe())


def test_a_recipe_that_suspends_is_a_bug() -> None:
    async def recipe() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="suspended"):
        drive(recipe())
