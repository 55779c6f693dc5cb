"""Redis, simulated (`sim.redis`): one server; several that know nothing of each other; one with replicas."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from hiredis import ReplyError

from gripfast_lab.engines.port import Answer, Happening
from gripfast_lab.moves import ALL, Ask
from gripfast_lab.sim.redis import lua
from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.keyspace import ALONE, About, Snapshot

EMPTY = 0
_BASE_MS = 1_000_000
"""The clock of a server that is asked something: only what is left until an expiry counts."""


class Contents:
    """What a server may have, numbered, and what becomes of it."""

    def __init__(self) -> None:
        self._database = Database(lambda: _BASE_MS * 1000)
        self._snapshots: list[Snapshot] = []
        self._numbers: dict[Any, int] = {}
        self._number()

    @functools.cache  # noqa: B019 - there is one of these for each search
    def asked(self, number: int, what: Ask, about: About = ALONE) -> tuple[int, Any]:
        """`about`: what the server says of itself."""
        database = self._database
        database.about = lambda: about
        database.restore(self._snapshots[number])
        if what.script:
            replies = [lua.ENGINE.run(what.script, [_word(what.commands[0])], [_word(what.commands[1])], database)]
        else:
            replies = [database.call([_word(each) for each in command.split()]) for command in what.commands]
        plain = [_plain(reply) for reply in replies]
        return self._number(), plain[0] if len(plain) == 1 else tuple(plain)

    @functools.cache  # noqa: B019
    def later(self, number: int, seconds: int) -> int:
        """Redis keeps a key to the end of its last millisecond; the lab, which counts in seconds, to its beginning."""
        values, expiries = self._snapshots[number]
        left = {key: expiry - 1000 * seconds for key, expiry in expiries.items()}
        gone = {key for key, expiry in left.items() if expiry <= _BASE_MS}
        self._database.restore(
            (
                {key: value for key, value in values.items() if key not in gone},
                {key: expiry for key, expiry in left.items() if key not in gone},
            )
        )
        return self._number()

    def next(self, number: int) -> int | None:
        _, expiries = self._snapshots[number]
        return min(((expiry - _BASE_MS) // 1000 for expiry in expiries.values()), default=None)

    def gone(self, before: int, after: int) -> str:
        """Which keys are not there any more, for a reader."""
        there = self._snapshots[after][0]
        names = [key.decode() for key in self._snapshots[before][0] if key not in there]
        return ", ".join("the lock" if name == "lock" else name for name in names)

    def _number(self) -> int:
        number = self._numbers.setdefault(self._database.fingerprint(), len(self._snapshots))
        if number == len(self._snapshots):
            values, expiries = self._database.snapshot()
            if any((expiry - _BASE_MS) % 1000 for expiry in expiries.values()):
                raise ValueError("the lab counts in whole seconds")
            self._snapshots.append((values, expiries))
        return number


class Alone:
    """One server."""

    nodes = ("Redis",)

    def __init__(self) -> None:
        self._contents = Contents()

    def start(self) -> int:
        return EMPTY

    def asked(self, state: int, who: str, what: Ask) -> tuple[str, ...]:
        return self.nodes

    def ask(self, state: int, who: str, what: Ask, missing: str = "") -> Answer:
        return Answer(*self._contents.asked(state, what))

    def passes(self, state: int, seconds: int, silent: frozenset[str]) -> int:
        return self._contents.later(state, seconds)

    def lapsed(self, before: int, after: int) -> str:
        gone = self._contents.gone(before, after)
        return f"{gone} expires" if gone else ""

    def next(self, state: int, silent: frozenset[str]) -> int | None:
        return self._contents.next(state)

    def closed(self, state: int, who: str) -> int:
        return state

    def happenings(self, state: int) -> Iterator[Happening]:
        return iter(())


class LeftOver(Alone):
    """One server, with a lock that a client has left behind whose time was over long ago: the value says 0."""

    def start(self) -> int:
        number, _ = self._contents.asked(EMPTY, Ask(("SET lock 0",)))
        return number


DOWN = -1
"""Instead of what a node has."""


class Several:
    """Nodes that know nothing of each other. A state has what each of them has."""

    def __init__(self, number: int, time_out: int = 0) -> None:
        self.nodes = tuple(f"n{place}" for place in range(1, number + 1))
        self._time_out = time_out
        self._contents = Contents()

    def start(self) -> tuple[int, ...]:
        return (EMPTY,) * len(self.nodes)

    def asked(self, state: tuple[int, ...], who: str, what: Ask) -> tuple[str, ...]:
        return self.nodes if what.at == ALL else (what.at,)

    def ask(self, state: tuple[int, ...], who: str, what: Ask, missing: str = "") -> Answer:
        after, replies, unreached = list(state), [], []
        for node in self.asked(state, who, what):
            place, reply = self.nodes.index(node), None
            if state[place] == DOWN or node == missing:
                unreached.append(node)
            else:
                after[place], reply = self._contents.asked(state[place], what._replace(at=""))
            replies.append(reply)
        takes = self._time_out if unreached else 0
        return Answer(tuple(after), tuple(replies) if what.at == ALL else replies[0], takes, tuple(unreached))

    def passes(self, state: tuple[int, ...], seconds: int, silent: frozenset[str]) -> tuple[int, ...]:
        return tuple(each if each == DOWN else self._contents.later(each, seconds) for each in state)

    def lapsed(self, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        pairs = zip(self.nodes, before, after, strict=True)
        at = [node for node, was, now in pairs if was != DOWN and self._contents.gone(was, now)]
        return f"the lock expires at {', '.join(at)}" if at else ""

    def next(self, state: tuple[int, ...], silent: frozenset[str]) -> int | None:
        moments = [self._contents.next(each) for each in state if each != DOWN]
        return min((each for each in moments if each is not None), default=None)

    def closed(self, state: tuple[int, ...], who: str) -> tuple[int, ...]:
        return state

    def happenings(self, state: tuple[int, ...]) -> Iterator[Happening]:
        for place, has in enumerate(state):
            node = self.nodes[place]
            if has == DOWN:
                continue
            yield Happening("node down", node, f"{node} goes down", _with(state, place, DOWN), "down")
            if has != EMPTY:
                empty, ahead = _with(state, place, EMPTY), _with(state, place, self._contents.later(has, AHEAD))
                yield Happening("restart", node, f"{node} restarts, empty", empty, "empty")
                text = f"the clock of {node} jumps {AHEAD} s ahead"
                yield Happening("clock", node, text, ahead, f"+{AHEAD} s")


AHEAD = 60
"""Seconds that a clock jumps: more than any ttl."""


def _with(state: tuple[int, ...], place: int, has: int) -> tuple[int, ...]:
    return (*state[:place], has, *state[place + 1 :])


class Copies(NamedTuple):
    serves: int
    """The place of the primary."""
    has: tuple[int, ...]
    """What each of them has."""
    asked_last: tuple[tuple[str, int], ...] = ()
    """Whom each client has its connection to."""


class Replicated:
    """A primary and its replicas, which get its writes a while later."""

    def __init__(self, replicas: int) -> None:
        self.nodes = ("primary", *(f"replica {place}" for place in range(1, replicas + 1)))
        self._contents = Contents()

    def start(self) -> Copies:
        return Copies(0, tuple(EMPTY for _ in self.nodes))

    def asked(self, state: Copies, who: str, what: Ask) -> tuple[str, ...]:
        return (self.nodes[state.serves],)

    def ask(self, state: Copies, who: str, what: Ask, missing: str = "") -> Answer | None:
        serves, has, asked_last = state
        if what.commands[0].startswith("WAIT"):
            if dict(asked_last)[who] != serves:
                return Answer(state, 0)  # that connection broke with the primary
            have_it = [place for place in self._replicas(state) if has[place] == has[serves]]
            return Answer(state, len(have_it)) if have_it else None
        after, reply = self._contents.asked(has[serves], what._replace(at=""))
        asked_last = tuple(sorted({**dict(asked_last), who: serves}.items()))
        return Answer(Copies(serves, _with(has, serves, after), asked_last), reply)

    def passes(self, state: Copies, seconds: int, silent: frozenset[str]) -> Copies:
        has = tuple(each if each == DOWN else self._contents.later(each, seconds) for each in state.has)
        return state._replace(has=has)

    def lapsed(self, before: Copies, after: Copies) -> str:
        was, now = before.has[before.serves], after.has[after.serves]
        return "the lock expires" if self._contents.gone(was, now) else ""

    def next(self, state: Copies, silent: frozenset[str]) -> int | None:
        return self._contents.next(state.has[state.serves])

    def closed(self, state: Copies, who: str) -> Copies:
        return state

    def happenings(self, state: Copies) -> Iterator[Happening]:
        serves, has, _ = state
        primary = self.nodes[serves]
        for place in self._replicas(state):
            node = self.nodes[place]
            text = f"{primary} goes down, and {node} takes its place"
            down = state._replace(serves=place, has=_with(has, serves, DOWN))
            yield Happening("failover", primary, text, down, "down")
            if has[place] != has[serves]:
                text = f"{node} gets what {primary} has"
                copied = state._replace(has=_with(has, place, has[serves]))
                yield Happening("", node, text, copied, "copy", source=primary)

    def _replicas(self, state: Copies) -> list[int]:
        return [place for place, has in enumerate(state.has) if place != state.serves and has != DOWN]


def _word(text: str) -> bytes:
    return text.encode()


def _plain(reply: Any) -> Any:
    if isinstance(reply, ReplyError):
        raise reply
    if isinstance(reply, list):
        return tuple(_plain(each) for each in reply)
    return reply.decode() if isinstance(reply, bytes) else reply
