"""How a connection to the primary is made: ask the Sentinels where it is, connect, and ask it whether it is one.

All Sentinels are asked at once, on threads of their own. One that is down, hangs or knows nothing does not matter. A
Sentinel that was cut off, or has just been started, may name the primary before the last failover; so a majority is
waited for, and the answer with the largest epoch counts. Where no majority answers soon, any answer will do: if it is
wrong, the server says so, or does not answer, and the next try asks again.

Nothing is remembered between two connections. A connection that can't serve is left (rules 6 and 7 in
`stores/redis/conversation.py`), and whoever makes the next one asks again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from queue import Empty
from typing import Any, Generic, NamedTuple, TypeVar

from hiredis import ReplyError

from gripfast.bounded import Call, Calls
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis.followers import Replicas
from gripfast.stores.redis.plain import Connect
from gripfast.stores.redis.wire import Wire
from gripfast.stores.sentinel import faults, protocol
from gripfast.stores.sentinel.protocol import Question
from gripfast.timed_queue import TimedQueue

HASTE = 0.5
"""Seconds after which any answer is enough."""
SHARE = 0.8
"""Of the time for a connection, how much the Sentinels may have: so it is told in time what is wrong with them."""
COUNT_WITHIN = 2.0
"""Seconds for the list of replicas, if all Sentinels are slow."""

T = TypeVar("T")


class Sentinel:
    def __init__(self, name: str, connect: Connect, settings: Mapping[str, Any]) -> None:
        self.name = name
        """Its address, for messages."""
        self.calls: Calls[list[Any]] = Calls(lambda replies: None)
        self._connect = connect
        self._settings = settings

    def ask(self, commands: Sequence[bytes], seconds: float) -> list[Any]:
        timeouts = {
            name: min(seconds, self._settings.get(name) or seconds)
            for name in ("socket_timeout", "socket_connect_timeout")
        }
        wire = self._connect({**self._settings, **timeouts})
        try:
            return wire.ask_stranger(b"".join(commands), len(commands))
        finally:
            wire.close()


class Inquiry(Generic[T]):
    """One question to all Sentinels, and what has come back."""

    def __init__(self, sentinels: Sequence[Sentinel], question: Question[T], seconds: float) -> None:
        self.answers: list[T] = []
        self.unknown: list[str] = []
        """Those that do not know the service."""
        self.troubles: dict[str, Fault] = {}
        """Why the others have not answered."""
        self._question = question
        self._came: TimedQueue[tuple[Sentinel, Call[list[Any]]]] = TimedQueue()
        self._waiting: dict[Sentinel, Call[list[Any]]] = {}
        self._begun = boottime()
        self._seconds = seconds
        try:
            for sentinel in sentinels:
                self._ask(sentinel)
            self._hear(len(sentinels) // 2 + 1)
        finally:
            self._give_up()

    def _ask(self, sentinel: Sentinel) -> None:
        ask = functools.partial(sentinel.ask, self._question.commands, self._seconds)
        came: Callable[[Call[list[Any]]], None] = lambda call: self._came.put((sentinel, call))  # noqa: E731
        try:
            self._waiting[sentinel] = sentinel.calls.begin(ask, came)
        except TimeoutError as error:  # too many earlier ones hang
            self.troubles[sentinel.name] = faults.of_sentinel(sentinel.name, error)

    def _hear(self, majority: int) -> None:
        while self._waiting and len(self.answers) < majority:
            within = HASTE if self.answers else self._seconds
            try:
                sentinel, call = self._came.get(max(0.0, self._begun + within - boottime()))
            except Empty:
                return
            del self._waiting[sentinel]
            self._take(sentinel.name, call)

    def _take(self, name: str, call: Call[list[Any]]) -> None:
        try:
            answer = self._question.read(call.outcome())
        except Exception as error:  # of any kind, as for a server
            self.troubles[name] = faults.of_sentinel(name, error)
            return
        if answer is None:
            self.unknown.append(name)
        else:
            self.answers.append(answer)

    def _give_up(self) -> None:
        for sentinel, call in self._waiting.items():
            call.give_up()
            self.troubles[sentinel.name] = faults.of_sentinel(sentinel.name, None)


class Rules(NamedTuple):
    """What a Sentinel of redis-py may demand, for its clients."""

    others_least: int = 0
    """A Sentinel that knows fewer others does not count."""
    host: str | None = None
    """Instead of the one that the Sentinels tell."""


class Service:
    """A primary and its replicas, which the Sentinels watch under a name."""

    def __init__(self, where: str, name: str, sentinels: Sequence[Sentinel], rules: Rules | None = None) -> None:
        self.where = where
        self.name = name
        self.sentinels = sentinels
        self._rules = rules or Rules()

    def connect(self, by: Connect, settings: Mapping[str, Any]) -> Wire:
        """To the primary. Raises LinkDown."""
        host, port = self._primary(SHARE * settings["socket_connect_timeout"])
        try:
            wire = by({**settings, "host": host, "port": port})
        except Exception as error:  # of any kind, as in `redis/dial.py`
            raise LinkDown(faults.primary_down(self.where, self.name, f"{host}:{port}", error)) from None
        try:
            self._check_role(wire, f"{host}:{port}")
        except BaseException:
            wire.close()
            raise
        wire.has_answered = False  # no request yet
        return wire

    def promotable(self) -> Replicas:
        """Which replicas the Sentinels may promote, by those that have seen the last failover. One of them may not know
        all yet. Raises LinkDown, also if they do not agree: in a failover, some still list those of the old primary."""
        answers = self._answers(protocol.replicas(self.name), COUNT_WITHIN)
        latest = max(each.epoch for each in answers)
        found = [each.replicas for each in answers if each.epoch == latest]
        fullest = max(found, key=lambda each: len(each.listed))
        if any(not each.listed <= fullest.listed for each in found):
            raise LinkDown(faults.disagree(self.where, self.name))
        return fullest._replace(promotable=frozenset().union(*(each.promotable for each in found)))

    def _primary(self, seconds: float) -> tuple[str, int]:
        question = protocol.primary(self.name, self._rules.others_least)
        latest = max(self._answers(question, seconds), key=lambda view: view.epoch)
        return self._rules.host or latest.host, latest.port

    def _answers(self, question: Question[T], seconds: float) -> list[T]:
        """At least one. Raises LinkDown."""
        asked = Inquiry(self.sentinels, question, seconds)
        if not asked.answers:
            raise LinkDown(faults.none_knows(self.where, self.name, asked.unknown, asked.troubles))
        return asked.answers

    def _check_role(self, wire: Wire, primary: str) -> None:
        try:
            role = wire.ask(protocol.ROLE)
        except OSError as error:
            raise LinkDown(faults.primary_down(self.where, self.name, primary, error)) from None
        if isinstance(role, ReplyError):
            raise LinkDown(faults.role_refused(self.where, primary, role))
        if not protocol.is_primary(role):
            raise LinkDown(faults.no_primary(self.where, primary))
