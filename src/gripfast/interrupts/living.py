"""A book of objects that are still alive, to be read while other threads write in it.

`list(WeakSet())` can't be: a thread that adds meanwhile makes it raise "Set changed size during iteration", and those
who list are the ones that must not fail: at a fork and at the end of the process. Here adding, the end of an object
and listing are one step of a dict each, made by the interpreter itself without any Python frame in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """In the order in which they came."""

    def __init__(self) -> None:
        self._refs: dict[weakref.ref[T], None] = {}

    def add(self, item: T) -> None:
        self._refs[weakref.ref(item, self._refs.pop)] = None

    def discard(self, item: T) -> None:
        self._refs.pop(weakref.ref(item), None)

    def clear(self) -> None:
        for ref in list(self._refs):
            self._refs.pop(ref, None)

    def __iter__(self) -> Iterator[T]:
        return iter([item for ref in list(self._refs) if (item := ref()) is not None])

    def __len__(self) -> int:
        return len(self._refs)
