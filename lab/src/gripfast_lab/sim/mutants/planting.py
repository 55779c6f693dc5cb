"""How a bug is planted into the production code of this process, and taken out again.

A bug is some text of a function, or of the scripts that run on the server, and what stands there instead. The text must
be there, exactly once in a function: so a bug can't become harmless unnoticed when the code around it changes.

An edited function keeps its identity and gets other code, so whoever has imported it, and whoever was made before, has
the bug too. An edited script is changed on its way into the server's Lua; to its callers it stays what it was. What the
production code has cached is forgotten, before and after.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from textwrap import dedent
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple

from gripfast.stores.redis import followers, protocol
from gripfast.stores.redis.script import Script
from gripfast_lab.sim.redis import group, kept, node, permits, voter
from gripfast_lab.sim.redis.lua import ENGINE

Area = Literal[
    "deadlines", "queue", "renewal", "clean-up", "tokens", "truth", "redlock", "permits", "once", "failover", "lazy",
    "etcd",
]  # fmt: skip

_SCRIPTS = dict.fromkeys((*node.SCRIPTS, *voter.SCRIPTS, *permits.SCRIPTS, *kept.SCRIPTS, *group.GUARDED))
_FOR_GOOD: list[object] = []
CACHES = (protocol.heads_of, protocol.packed_times, protocol.packed_terms, followers.wait)


class Edit(NamedTuple):
    function: Any
    """As one names it; a cached one stands for what it caches."""
    old: str
    new: str


class Rewrite(NamedTuple):
    """Of every script that has this text."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    area: Area
    text: str
    """What is wrong, in one sentence."""
    bugs: tuple[Edit | Rewrite, ...]
    scenario: str = "redis"
    """In which it must be caught."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        edits: dict[FunctionType, list[Edit]] = {}
        for bug in self.bugs:
            if isinstance(bug, Edit):
                edits.setdefault(inspect.unwrap(bug.function), []).append(bug)
        with ExitStack() as stack:
            for function, bugs in edits.items():
                stack.enter_context(_edited(function, bugs))
            stack.enter_context(_rewritten([bug for bug in self.bugs if isinstance(bug, Rewrite)]))
            stack.callback(_forget_cached)
            _forget_cached()
            yield

    def plant_for_good(self) -> None:
        """In this process, which may have real servers: scripts are changed before they are sent, as well."""
        planted = self.planted()
        planted.__enter__()
        _FOR_GOOD.append(planted)  # what nobody has any more would be taken out
        for bug in self.bugs:
            if isinstance(bug, Rewrite):
                for script in _SCRIPTS:
                    _change(script, bug)


class NotThere(LookupError):
    """The production code has changed: the bug has to be planted elsewhere."""


@contextmanager
def _edited(function: FunctionType, bugs: Sequence[Edit]) -> Iterator[None]:
    original = function.__code__
    function.__code__ = _code_with(bugs, function)
    try:
        yield
    finally:
        function.__code__ = original


def _code_with(bugs: Sequence[Edit], function: FunctionType) -> CodeType:
    source = dedent(inspect.getsource(function))
    for bug in bugs:
        if source.count(bug.old) != 1:
            raise NotThere(f"{function.__qualname__} has {source.count(bug.old)} times: {bug.old}")
        source = source.replace(bug.old, bug.new)
    namespace = dict(function.__globals__)
    exec(compile(source, function.__code__.co_filename, "exec"), namespace)
    edited: FunctionType = inspect.unwrap(namespace[function.__name__])
    return edited.__code__


@contextmanager
def _rewritten(bugs: Sequence[Rewrite]) -> Iterator[None]:
    if ENGINE.rewrite is not None:
        raise RuntimeError("another bug is planted already")
    changed = _texts_with(bugs)
    if changed:
        ENGINE.rewrite = lambda text: changed.get(text, text)
    try:
        yield
    finally:
        ENGINE.rewrite = None


def _texts_with(bugs: Sequence[Rewrite]) -> dict[str, str]:
    changed: dict[str, str] = {}
    for bug in bugs:
        having = [each.text for each in _SCRIPTS if bug.old in each.text]
        if not having:
            raise NotThere(f"no script has: {bug.old}")
        for text in having:
            changed[text] = changed.get(text, text).replace(bug.old, bug.new)
    return changed


def _change(script: Script, bug: Rewrite) -> None:
    make = script._make

    def changed(and_open: str) -> str:
        return (make if isinstance(make, str) else make(and_open)).replace(bug.old, bug.new)

    kept = script._keys, script._arguments, script.is_believed, script.is_acked
    script.__dict__.clear()  # also its other forms, which were made of the old text
    script.__init__(changed if callable(make) else changed(""), *kept)  # type: ignore[misc]


def _forget_cached() -> None:
    for cached in CACHES:
        cached.cache_clear()
