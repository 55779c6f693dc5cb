"""The node of a small world: what it does is a function of what it has, and of the request.

As for processes (see `alone`), that function is a table that grows. But a node can be put back to an earlier state by
giving it its memory again, so it is known by what it has: equal contents are one state, however they came about.

Its clock goes on by a microsecond with each request, as if that were the time it takes. So tokens differ although the
world's time stands still while messages are delivered.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from gripfast.core.ports import Kind
from gripfast.stores.redis.keys import MARK
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.history import Event
from gripfast_lab.sim.plan import Plan
from gripfast_lab.sim.redis import permits
from gripfast_lab.sim.redis.node import SCRIPTS, Node
from gripfast_lab.sim.redis.observer import Observer
from gripfast_lab.sim.small.messages import Message, Messages
from gripfast_lab.sim.world import World

FAR = 3600.0
"""Seconds: what expires only after so long does not matter in a small world."""

Connection = tuple[int, int]
"""Which process, and the number it has there."""


class Has(NamedTuple):
    """All that a node has."""

    memory: Any
    requests: int
    scripts: tuple[str, ...]
    subscribed: tuple[tuple[Connection, bytes], ...]
    """With the request that did it."""


class Done(NamedTuple):
    """What came of a request: the node's next state, what it sent on which connections, and what was wrong with it."""

    state: int
    sent: tuple[tuple[Connection, Message], ...]
    trouble: str | None


class Still:
    """All that is known of the node. Its states are numbers."""

    def __init__(self, plan: Plan, messages: Messages) -> None:
        host = plan.nodes[0]
        self._kinds = {name: share.kind for name, share in plan.shares}
        self._scripts = (*SCRIPTS, *permits.SCRIPTS) if plan.shares else SCRIPTS
        self.runs = 0
        self._messages = messages
        self._world = World()
        self._clock = Clock(host.offset, host.rate)
        self._states: list[Has] = []
        self._expiries: list[tuple[float, ...]] = []
        self._numbers: dict[Hashable, int] = {}
        self._done: dict[tuple[int, float, Connection, Message], Done] = {}
        texts = tuple(script.text for script in self._scripts) if plan.is_warm else ()
        node, _ = self._put_back(Has(None, 0, texts, ()))
        self.start = self._number(node, ())

    def receive(self, state: int, now: float, connection: Connection, request: Message) -> Done:
        key = state, now, connection, request
        done = self._done.get(key)
        if done is None:
            done = self._done[key] = self._found_out(*key)
        return done

    def subscribers(self, state: int) -> tuple[tuple[Connection, bytes], ...]:
        return self._states[state].subscribed

    def hung_up(self, state: int, connection: Connection) -> int:
        has = self._states[state]
        subscribed = tuple(each for each in has.subscribed if each[0] != connection)
        return state if subscribed == has.subscribed else self._changed(has, subscribed=subscribed)

    def forget_scripts(self, state: int) -> int:
        return self._changed(self._states[state], scripts=())

    def restart(self, state: int) -> int:
        """With its memory; connections are gone."""
        return self._changed(self._states[state], scripts=(), subscribed=())

    def next_expiry(self, state: int, now: float) -> float:
        return min((each for each in self._expiries[state] if now < each < now + FAR), default=math.inf)

    def keys(self, state: int, now: float) -> list[bytes]:
        """What is still there then, but for the tokens."""
        self._world.now = now
        node, _ = self._put_back(self._states[state])
        keys = node.server.database.keys()
        return [key for key in keys if not any(each in key for each in (MARK + b"token", *permits.LIVES_ON))]

    # --------------------------------------------------------------------------------------------------------------

    def _found_out(self, state: int, now: float, connection: Connection, request: Message) -> Done:
        self.runs += 1
        self._world.now = now
        has = self._states[state]
        node, lines = self._put_back(has)
        node.requests += 1
        line = lines.get(connection) or _Line(connection, node)
        node.receive(line, request.content)  # type: ignore[arg-type]
        subscribed = has.subscribed
        if b"SUBSCRIBE" in request.content[:32]:
            subscribed = (*subscribed, (connection, request.content))
        sent = tuple((to, self._messages.of(content)) for to, content in node.sent)
        trouble = next((str(each) for each in violations(node.seen)), None)
        return Done(self._number(node, subscribed), sent, trouble)

    def _put_back(self, has: Has) -> tuple[_Node, dict[Connection, _Line]]:
        node = _Node(self._world, "node", self._clock, self._kinds)
        node.requests = has.requests
        for text in has.scripts:
            node.server.remember(text)
        lines = {connection: _Line(connection, node) for connection, _ in has.subscribed}
        for connection, request in has.subscribed:
            lines[connection].session.receive(request)
        node.recall(has.memory)
        node.recall(node.memory())  # a copy: what is remembered stays as it is
        return node, lines

    def _changed(self, has: Has, **changes: Any) -> int:
        has = has._replace(**changes)
        node, _ = self._put_back(has)
        return self._number(node, has.subscribed)

    def _number(self, node: _Node, subscribed: tuple[tuple[Connection, bytes], ...]) -> int:
        known = tuple(script.text for script in self._scripts if node.server.script(script.sha.encode()) is not None)
        memory: Any = node.memory()
        now_us = node.now_us()
        # Expiries by the clock, not from now on: the same until someone asks for them.
        contents = tuple(
            (key, value, None if left_us is None else left_us + now_us)
            for key, value, left_us in node.server.database.fingerprint()  # type: ignore[attr-defined]
        )
        key = contents, repr(memory[1]), node.requests, known, subscribed
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(Has(memory, node.requests, known, subscribed))
            expiries = [expiry_us / 1e6 for _, _, expiry_us in contents if expiry_us is not None]
            expiries += [ends_ms / 1e3 for ends_ms in self._ends(node)]
            self._expiries.append(tuple(self._clock.true_at(each + PAST_EXPIRY) for each in expiries))
        return number

    def _ends(self, node: _Node) -> list[float]:
        """Of permits, which end one by one."""
        holders = (permits.holders_of(node.server, name, kind) for name, kind in self._kinds.items())
        return [having.ends_ms for each in holders for having in each.values()]


PAST_EXPIRY = 0.001_1
"""Seconds: a key is there until its millisecond is over."""


class _Node(Node):
    """One that does nothing for longer than one request."""

    requests = 0

    def __init__(self, world: World, name: str, clock: Clock, kinds: Mapping[str, Kind]) -> None:
        observer = permits.PermitObserver if kinds else Observer
        seen = observer(lambda: world.now, self._note)
        if isinstance(seen, permits.PermitObserver):
            seen.kinds = kinds
        super().__init__(world, name, clock, seen)
        self.sent: list[tuple[Connection, Any]] = []
        self.seen: list[Event] = []

    def now_us(self) -> int:
        return super().now_us() + self.requests

    def _note(self, who: str, name: str, kind: Any, **more: Any) -> None:
        self.seen.append(Event(self._world.now, who, name, kind, **more))


class _Line:
    """What the node sees of a connection."""

    session: Any = None

    def __init__(self, connection: Connection, node: _Node) -> None:
        self._connection = connection
        self._node = node
        node.accepts(self)  # type: ignore[arg-type]

    def answer(self, message: Any, is_push: bool = False) -> None:
        self._node.sent.append((self._connection, message))
