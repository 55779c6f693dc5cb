"""A function for the loss of a lease is tried out where it is given, not at the loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import gripfast
from support.both_colours import staged


def _of_the_lease_alone(lease: object) -> None: ...


async def _of_three(lease: object, reason: str, more: int) -> None: ...


TAKE_OTHERS: list[Callable[..., object]] = [_of_the_lease_alone, _of_three, [0].append, lambda: None]
TAKE_ON_LOST: dict[str, Callable[[Any, Any], object]] = {
    "lock": lambda client, on_lost: client.lock("job", on_lost=on_lost),
    "locks": lambda client, on_lost: client.locks("job", "other", on_lost=on_lost),
    "semaphore": lambda client, on_lost: client.semaphore("job", limit=2, on_lost=on_lost),
    "rwlock": lambda client, on_lost: client.rwlock("job", on_lost=on_lost).read(),
    "election": lambda client, on_lost: client.election("job", on_lost=on_lost),
    "locked": lambda client, on_lost: client.locked("job", on_lost=on_lost)(lambda: None),
    "limited": lambda client, on_lost: client.limited("job", 2, on_lost=on_lost)(lambda: None),
    "elected": lambda client, on_lost: client.elected("job", on_lost=on_lost)(lambda: None),
}


@pytest.mark.parametrize("made", TAKE_ON_LOST)
@staged
async def test_an_on_lost_that_can_not_be_called_is_refused_where_it_is_given(made: str) -> None:
    """Not at the loss: what it should have stopped would go on."""
    async with gripfast.connect_async("memory://") as client:
        with gripfast.connect("memory://") as plain:
            for each in (plain, client):
                for on_lost in TAKE_OTHERS:
                    with pytest.raises(gripfast.ConfigurationError, match=r"called as on_lost\(lease, reason\)"):
                        TAKE_ON_LOST[made](each, on_lost)


@staged
async def test_so_is_one_of_adopt() -> None:
    async with gripfast.connect_async("memory://") as client:
        text = await (await client.lock("job").acquire()).detach()
        with pytest.raises(gripfast.ConfigurationError, match=r"_of_the_lease_alone\(lease"):
            await client.adopt(text, on_lost=_of_the_lease_alone)  # type: ignore[arg-type]
        await (await client.adopt(text)).release()


def test_an_on_lost_that_can_be_called_is_taken() -> None:
    class Stop:
        def __call__(self, lease: object, reason: str, code: int = 1) -> None: ...

    @functools.wraps(_of_the_lease_alone)
    def wrapper(*given: object) -> None: ...

    bound = functools.partial(_of_three, more=1)
    takes: list[Any] = [Stop(), wrapper, bound, mock.Mock(), print, lambda *_: None, type, _of_two]
    with gripfast.connect("memory://") as client:
        assert len([client.lock("job", on_lost=each) for each in takes]) == len(takes)


async def _of_two(lease: object, reason: str) -> None: ...
