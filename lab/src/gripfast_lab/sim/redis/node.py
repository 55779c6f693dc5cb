"""A Redis server in the world: it is reached over the network, and it can be paused, killed and replaced.

Its memory is what its disk or its replica has: all of it (a log that is written before each answer), none of it, or
what it was a while ago. Scripts, connections and subscriptions never survive it.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from gripfast.stores.redis import scripts
from gripfast.stores.redis.keys import side_key
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.network import Connection, Duplicate
from gripfast_lab.sim.redis.server import Server
from gripfast_lab.sim.world import World

SCRIPTS = (
    scripts.CLAIM, scripts.RELEASE, scripts.RENEW, scripts.WHY, scripts.ABANDON, scripts.FORCE_RELEASE, scripts.INSPECT,
)  # fmt: skip
LOADING = b"LOADING Redis is loading the dataset in memory"


class Watches(Protocol):
    """Notes what a node really did. What it knows is lost and found again with the node's memory."""

    def watch(self, server: Server) -> None: ...

    def snapshot(self) -> object: ...

    def restore(self, seen: Any) -> None: ...

    def lose_sight(self) -> None:
        """The node's clock has jumped."""
        ...


class Node:
    def __init__(self, world: World, name: str, clock: Clock, observer: Watches) -> None:
        self.name = name
        self.clock = clock
        self.is_up = True
        self._world = world
        self._read_at = -1.0
        self._us = 0
        self._observer = observer
        self._connections: dict[Connection, None] = {}
        self._pauses = 0
        self._missed: list[tuple[Connection, Any]] = []
        self.server = self._new_server()
        observer.watch(self.server)

    def _new_server(self) -> Server:
        return Server(self.now_us)

    def now_us(self) -> int:
        """Asked many times at the same instant, while a script runs."""
        now = self._world.now
        if now != self._read_at:
            self._read_at = now
            self._us = int(self.clock.read(now) * 1_000_000)
        return self._us

    def warm_up(self) -> None:
        """As if its scripts had been used before."""
        for script in SCRIPTS:
            self.server.remember(script.text)

    # -- the network's side --------------------------------------------------------------------------------------

    def accepts(self, connection: Connection) -> bool:
        """Also while it is paused: the system does this for it."""
        if self.is_up:
            connection.session = self.server.connect(lambda message: connection.answer([message], is_push=True))
            self._connections[connection] = None
        return self.is_up

    def receive(self, connection: Connection, message: Any) -> None:
        if connection.session is None:
            return
        if self._pauses:
            self._missed.append((connection, message))
        elif isinstance(message, Duplicate):
            connection.session.receive(message.message)
        else:
            connection.answer(connection.session.receive(message))

    def hung_up(self, connection: Connection) -> None:
        """Behind what came before, if it is paused: it has not seen that the connection is gone."""
        if self._pauses:
            self._missed.append((connection, None))
        elif connection in self._connections:
            self._let_go(connection)

    # -- what can be done to it ----------------------------------------------------------------------------------

    def pause(self) -> None:
        self._pauses += 1

    def go_on(self) -> None:
        self._pauses -= 1
        while self._missed and not self._pauses:
            connection, message = self._missed.pop(0)
            if message is None:
                self.hung_up(connection)
            else:
                self.receive(connection, message)

    def crash(self) -> None:
        self.is_up = False
        self._missed.clear()
        for connection in list(self._connections):
            self._let_go(connection)
            connection.reset()
        self.server.forget_scripts()

    def restart(self) -> None:
        """With whatever memory it has."""
        self.is_up = True

    def memory(self) -> object:
        return self.server.database.snapshot(), self._observer.snapshot()

    def recall(self, memory: Any) -> None:
        """Have this memory, or none, from now on."""
        contents, seen = memory or (None, None)
        if contents is None:
            self.server.database.call([b"FLUSHALL"])
        else:
            self.server.database.restore(contents)
        self._observer.restore(seen)

    def jump(self, seconds: float) -> None:
        """Its clock is put forward, or back."""
        self.clock.jump(self._world.now, seconds)
        self._read_at = -1.0
        self._observer.lose_sight()

    def keeps_until(self, lock: str, owner: str) -> float:
        """The true moment until which the lock is this owner's, unless something happens; the past if it is not."""
        key, database = lock.encode(), self.server.database
        if database.text(key) != owner.encode():
            return -math.inf
        expiry_ms = database.expiry_ms(key)
        return math.inf if expiry_ms is None else self.clock.true_at((expiry_ms + 1) / 1000)

    def holder(self, lock: str) -> str:
        """Nobody if empty."""
        return (self.server.database.text(lock.encode()) or b"").decode()

    def holders(self, lock: str) -> list[str]:
        return list(filter(None, [self.holder(lock)]))

    def has(self, lock: str, owner: str) -> bool:
        """The lock, or a place in line."""
        key, who, database = lock.encode(), owner.encode(), self.server.database
        if database.text(key) == who:
            return True
        line, places = (side_key(key, kind) for kind in (b"line", b"places"))
        return None not in (database.call([b"ZSCORE", line, who]), database.call([b"HGET", places, who]))

    def load(self) -> None:
        """Whatever is asked is refused meanwhile."""
        self.server.refusal = LOADING

    def end_loading(self) -> None:
        self.server.refusal = None

    def _let_go(self, connection: Connection) -> None:
        del self._connections[connection]
        connection.session.close()
        connection.session = None
