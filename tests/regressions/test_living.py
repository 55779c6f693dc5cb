"""What is listed at a fork and at the end of the process, while other threads make clients and connections."""

from __future__ import annotations

import _weakrefset
import gc
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import gripfast
from gripfast.interrupts.living import Living
from support.switching import at_every_opcode

SOURCE = Path(gripfast.__file__).parent


class Thing:
    pass


class Book(Protocol):
    def add(self, item: Thing) -> None: ...
    def __iter__(self) -> Iterable[Thing]: ...


def failures(make: Callable[[], Book], target: Path) -> list[str]:
    """Where listing it fails, or forgets somebody, if another thread adds to it there."""
    errors: list[str] = []
    things = [Thing() for _ in range(4)]

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        book = make()
        for thing in things[:3]:
            book.add(thing)

        def action() -> None:
            try:
                assert set(things[:3]) <= set(book)  # type: ignore[call-overload]
            except (AssertionError, RuntimeError) as error:
                errors.append(repr(error))

        return action, lambda: book.add(things[3])

    assert list(at_every_opcode(target, begin))
    return errors


def test_who_is_no_longer_in_it_can_come_again() -> None:
    book: Living[Thing] = Living()
    thing = Thing()
    for _ in range(2):
        book.add(thing)
        assert list(book) == [thing]
        book.discard(thing)
        book.discard(thing)
        assert list(book) == []


def test_it_is_listed_whoever_is_added_meanwhile() -> None:
    assert failures(Living, SOURCE) == []


def test_a_weak_set_could_not_be() -> None:
    assert any("changed size" in each for each in failures(weakref.WeakSet, Path(_weakrefset.__file__).parent))


def test_it_has_what_lives_in_the_order_in_which_it_came_and_lets_go_of_the_rest() -> None:
    book: Living[Thing] = Living()
    things = [Thing() for _ in range(4)]
    for thing in things:
        book.add(thing)
    assert list(book) == things
    del things[1:], thing
    gc.collect()
    assert list(book) == things
    assert len(book) == 1
    book.clear()
    assert list(book) == []
