"""One process of a small world, alone: what it does is a function of what it is told, and when.

A process has no chance and no clock but the one it is given, so it is known by the list of its inputs. `Behaviour` is
that function, as a table that grows: for an input that it has not met yet it runs the real thing (the recipes, the
store, the links, an actor, on the network of the other worlds), and remembers what came of it. A process can't be
copied, but it is put back to any earlier state by telling a new one the same again.

What it sends is not delivered but handed out; so is everything else that the rest of the world could see of it.
Connections are made at once, and so happens whatever is due now.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.handing import Board
from gripfast_lab.sim.history import Event, Kind
from gripfast_lab.sim.network import Connection, Network, Peer, Pipe
from gripfast_lab.sim.plan import Plan
from gripfast_lab.sim.processes import Process, Timer
from gripfast_lab.sim.redis.link import SimConversation
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.observer import Observer
from gripfast_lab.sim.small.messages import HANG_UP, Message, Messages
from gripfast_lab.sim.stage import Stage
from gripfast_lab.sim.world import Promise, World

SAME_MOMENT = 1e-6
"""Seconds: timers are due together if they are no further apart, because floats are not exact."""

Input = tuple[Any, ...]
"""What happens to it: the name of a method of `Alone`, and what that is given."""


class Belief(NamedTuple):
    """That one of its actors holds a lock."""

    who: str
    name: str
    token: int
    until: float
    ttl: float


class Known(NamedTuple):
    """A process after all that it was told, as far as others can see."""

    sent: tuple[tuple[int, Message], ...] = ()
    """On which connection, what; since its last input, as `noted`."""
    noted: tuple[Event, ...] = ()
    wakes_at: float = math.inf
    """When it will do something by itself; `looks_at`: or look whether there is anything to do."""
    looks_at: float = math.inf
    connections: tuple[int, ...] = ()
    """The open ones, by what it knows."""
    busy: tuple[str, ...] = ()
    """Those who could be cancelled."""
    beliefs: tuple[Belief, ...] = ()
    is_over: bool = False
    is_dead: bool = False
    owes: tuple[str, ...] = ()
    """Once it is over: the owners that it still has to give back."""
    left: tuple[str, ...] = ()
    """Once it is closed: what it has not tidied up."""
    trouble: str | None = None
    """An exception that nobody should see."""


class Behaviour:
    """All that is known of one process. Its states are numbers; 0 is before it was told anything."""

    def __init__(self, plan: Plan, place: int, messages: Messages) -> None:
        self.states = [Known()]
        self.runs = 0
        """How many inputs were not in the table."""
        self._plan = plan
        self._place = place
        self._messages = messages
        self._origins: list[tuple[int, float, Input]] = [(0, 0.0, ())]
        self._after: dict[tuple[int, float, Input], int] = {}
        self._alive: dict[int, Alone] = {}

    def after(self, state: int, now: float, what: Input) -> int:
        key = state, now, what
        known = self._after.get(key)
        if known is None:
            known = self._after[key] = self._found_out(key)
        return known

    def _found_out(self, key: tuple[int, float, Input]) -> int:
        state, now, what = key
        self.runs += 1
        alone = self._alive.pop(state, None) or self._put_back(state)
        alone.told(now, what)
        self.states.append(alone.known())
        self._origins.append(key)
        new = len(self.states) - 1
        self._alive[new] = alone
        if len(self._alive) > MOST_ALIVE:
            del self._alive[next(iter(self._alive))]
        return new

    def _put_back(self, state: int) -> Alone:
        alone = Alone(self._plan, self._place, self._messages)
        for now, what in reversed(list(self._inputs(state))):
            alone.told(now, what)
        return alone

    def _inputs(self, state: int) -> Iterator[tuple[float, Input]]:
        while state:
            state, now, what = self._origins[state]
            yield now, what


MOST_ALIVE = 1000
"""Processes that are kept as they are, in case they are the next to be told something."""


class Alone(Stage):
    """A stage with one process, and a node that accepts connections and does nothing else."""

    def __init__(self, plan: Plan, place: int, messages: Messages) -> None:
        host = plan.hosts[place]
        self.plan = plan
        self._doubled, self._chased = set(), {}
        self.fired = {}
        self.world = self._time = _Time()
        self.history: list[Event] = []
        self.network = self._lines = _Lines(self.world, Chance(0))
        self._entered = {}
        self.board = Board()
        self.nodes = [_FarAway(self.world, "node", Clock(0.0), Observer(lambda: 0.0, self.note))]
        self._process = Process(self.world, host.name, Clock(host.offset, host.rate))
        self.processes = {host.name: self._process}
        self._runtime = self._client(host)
        self.runtimes = {host.name: self._runtime}
        names = dict.fromkeys(errand.actor for errand in plan.errands if errand.actor.startswith(f"{host.name}/"))
        self.actors = {name: self._actor(name, {}) for name in names}
        self._messages = messages
        self._sent: list[tuple[int, Message]] = []
        self._is_closing = False
        self._trouble: str | None = None

    def note(self, who: str, name: str, kind: Kind, **more: Any) -> None:
        self.history.append(Event(self.world.now, who, name, kind, **more))

    def told(self, now: float, what: Input) -> None:
        self.history.clear()
        self._sent.clear()
        try:
            getattr(self, what[0])(now, *what[1:])
            self._settle()
        except Exception as error:
            self._trouble = f"{type(error).__name__}: {error}"

    # Inputs -----------------------------------------------------------------------------------------------------------

    def starts(self, now: float) -> None:
        for actor in self.actors.values():
            actor.start()

    def hears(self, now: float, connection: int, message: Message) -> None:
        self._time.go_to(now)
        self._lines.made[connection].back.send(list(message.content))  # which it may change

    def is_cut_off(self, now: float, connection: int) -> None:
        """A reset."""
        self._time.go_to(now)
        self._lines.made[connection].reset()

    def wakes(self, now: float) -> None:
        """Time has passed, and each timer fired in its moment."""
        while (moment := self._time.due(now)) is not None:
            self._time.go_to(moment)
            self._time.fire()
            self._settle()

    def wakes_late(self, now: float) -> None:
        """It was paused: everything that is due happens now."""
        self._time.go_to(now)

    def dies(self, now: float) -> None:
        self._time.go_to(now)
        self.kill(self._process, with_machine=False)

    def cancels(self, now: float, actor: str) -> None:
        self._time.go_to(now)
        self._process.do(self.actors[actor].cancel)

    def closes(self, now: float) -> None:
        self._time.go_to(now)
        self._is_closing = True
        self._process.start(f"{self._process.name}/closes", self._runtime.close())

    # What comes of them -----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Until nothing more happens at this moment."""
        time = self._time
        while True:
            if time.sent:
                self._carry(*time.sent.popleft())
            elif time.due(time.now + SAME_MOMENT) is not None:
                time.fire()
            else:
                return

    def _carry(self, pipe: Pipe, deliver: Callable[..., object], message: Any) -> None:
        number, connection = self._lines.ends[pipe]
        if pipe is connection.back or not connection.session:
            deliver(message)  # what was said to it, and how a connection is made
        else:
            self._sent.append((number, self._messages.of(message) if isinstance(message, bytes) else HANG_UP))

    def known(self) -> Known:
        is_dead = self._process.is_dead
        is_over = all(actor.is_over for actor in self.actors.values())
        return Known(
            sent=tuple(self._sent),
            noted=tuple(self.history),
            wakes_at=math.inf if is_dead else self._time.next(_matters),
            looks_at=math.inf if is_dead else self._time.next(_is_set),
            connections=tuple(number for number, each in self._lines.made.items() if each.is_open),
            busy=() if is_dead else tuple(actor.name for actor in self.actors.values() if actor.is_busy),
            beliefs=() if is_dead else tuple(self._beliefs()),
            is_over=is_over,
            is_dead=is_dead,
            owes=tuple(mark.owner for mark in self._runtime.env.ledger.marks()) if is_over else (),
            left=tuple(self._left()) if self._is_closing else (),
            trouble=self._trouble,
        )

    def _beliefs(self) -> Iterator[Belief]:
        clock = self._process.clock
        for actor in self.actors.values():
            for name in self.plan.names:
                if (state := actor.holds(name)) is not None:
                    yield Belief(actor.name, name, state.token, clock.true_at(state.deadline), state.ttl)

    def _left(self) -> Iterator[str]:
        for task in self._process.tasks:
            yield f"task {task.name}"
        for number, connection in self._lines.made.items():
            if connection.is_open:
                yield f"connection {number}"


class _Time(World):
    """Nothing happens in it by itself: timers wait until they are fired, and messages until they are carried."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: deque[tuple[Pipe, Callable[..., object], Any]] = deque()
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._set = 0

    def at(self, moment: float, call: Callable[..., object], *args: Any) -> None:
        pipe = getattr(call, "__self__", None)
        if isinstance(pipe, Pipe):
            self.sent.append((pipe, call, *args))
        else:
            self._set += 1
            heappush(self._timers, (moment, self._set, call, args))

    def go_to(self, moment: float) -> None:
        self.now = max(self.now, moment)

    def due(self, until: float) -> float | None:
        """The moment of the next timer, if it is so early."""
        return self._timers[0][0] if self._timers and self._timers[0][0] <= until else None

    def fire(self) -> None:
        moment, _, call, args = heappop(self._timers)
        self.go_to(moment)
        call(*args)

    def next(self, counts: Callable[[Timer], bool]) -> float:
        moments = [
            moment for moment, _, _, args in self._timers if all(counts(arg) for arg in args if isinstance(arg, Timer))
        ]
        return min(moments, default=math.inf)


def _is_set(timer: Timer) -> bool:
    of = getattr(timer.call, "__self__", None)
    return timer.call is not None and not (isinstance(of, Promise) and of.is_kept)


def _matters(timer: Timer) -> bool:
    """Not if it only looks after a connection on which nothing is awaited."""
    of = getattr(timer.call, "__self__", None)
    return _is_set(timer) and not (isinstance(of, SimConversation) and not (of.owed and of.is_open))


class _Lines(Network):
    """Numbers the connections of its one process."""

    def __init__(self, world: World, chance: Chance) -> None:
        super().__init__(world, chance)
        self.made: dict[int, Connection] = {}
        self.ends: dict[Pipe, tuple[int, Connection]] = {}

    def connect(self, process: Process, peer: Peer) -> tuple[Connection, Promise[bool]]:
        connection, accepted = super().connect(process, peer)
        number = len(self.made) + 1
        self.made[number] = connection
        self.ends[connection.there] = self.ends[connection.back] = number, connection
        return connection, accepted


class _FarAway(Node):
    def accepts(self, connection: Connection) -> bool:
        connection.session = self
        return True

    def hung_up(self, connection: Connection) -> None:
        """Known elsewhere."""
