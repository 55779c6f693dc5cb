"""A state of a small world, and what can happen to one."""

from __future__ import annotations

from typing import Any, NamedTuple

from gripfast_lab.sim.plan import Plan
from gripfast_lab.sim.small.alone import SAME_MOMENT, Behaviour, Input, Known
from gripfast_lab.sim.small.messages import HANG_UP, Message, Messages
from gripfast_lab.sim.small.still import Connection, Still
from gripfast_lab.sim.small.told import Told

CLOSING = 60.0

There = tuple[Message, ...]
Back = tuple[Message, ...]
LOST_THERE, LOST_BACK = 1, 2
Carried = tuple[Connection, There, Back, int]
"""What is under way on a connection, and whether what is sent from now on is lost. One without any is left out."""


class State(NamedTuple):
    now: float
    processes: tuple[int, ...]
    node: int
    carried: tuple[Carried, ...]
    paused: tuple[int, ...]
    faults: int
    passes: int
    """How many are left, as `faults`."""
    history: int
    trouble: str | None


class Parts:
    """What each part of a state does, whose number it has there."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        messages = Messages()
        self.behaviours = [Behaviour(plan, place, messages) for place in range(len(plan.hosts))]
        self.still = Still(plan, messages)
        self.told = Told(len(plan.hosts))

    def known(self, state: State) -> list[Known]:
        return [behaviour.states[number] for behaviour, number in zip(self.behaviours, state.processes, strict=True)]


class Draft:
    """A state while something happens to it."""

    def __init__(self, parts: Parts, state: State) -> None:
        self._parts = parts
        self._state = state
        self._now = state.now
        self._processes = list(state.processes)
        self._node = state.node
        self._paused = state.paused
        self._carried = {connection: (there, back, lost) for connection, there, back, lost in state.carried}
        self._history = state.history
        self._trouble = state.trouble

    def state(self, faults: int | None = None, passes: int | None = None) -> State:
        self._hang_up_unnoticed()
        before = self._state
        return State(
            self._now,
            tuple(self._processes),
            self._node,
            tuple(sorted([(key, *rest) for key, rest in self._carried.items()], key=_connection_of)),
            self._paused,
            before.faults if faults is None else faults,
            before.passes if passes is None else passes,
            self._history,
            self._trouble,
        )

    def _hang_up_unnoticed(self) -> None:
        """Where nothing comes before it, and nobody could tell the difference."""
        listening = [connection for connection, _ in self._parts.still.subscribers(self._node)]
        for connection, (there, _, _) in list(self._carried.items()):
            if there and there[0] is HANG_UP and connection not in listening:
                del self._carried[connection]

    # Messages ---------------------------------------------------------------------------------------------------------

    def arrives_there(self, connection: Connection, message: Message) -> None:
        there, back, lost = self._carried[connection]
        self._put(connection, there[1:], back, lost)
        if message is HANG_UP:
            self._carried.pop(connection, None)
            self._node = self._parts.still.hung_up(self._node, connection)
        else:
            self._ask(connection, message)

    def arrives_twice(self, connection: Connection, message: Message) -> None:
        self.arrives_there(connection, message)
        self._ask(connection, message, is_heard=False)

    def _ask(self, connection: Connection, message: Message, is_heard: bool = True) -> None:
        done = self._parts.still.receive(self._node, self._now, connection, message)
        self._node = done.state
        self._trouble = self._trouble or done.trouble
        for to, reply in done.sent:
            if is_heard or to != connection:
                self._answer(to, reply)

    def arrives_back(self, connection: Connection, message: Message) -> None:
        there, back, lost = self._carried[connection]
        self._put(connection, there, back[1:], lost)
        self.tell(connection[0], ("hears", connection[1], message))

    def _answer(self, connection: Connection, message: Message) -> None:
        there, back, lost = self._carried.get(connection, _NOTHING)
        if not lost & LOST_BACK and connection[1] in self._known(connection[0]).connections:
            self._put(connection, there, (*back, message), lost)

    def _send(self, connection: Connection, message: Message) -> None:
        there, back, lost = self._carried.get(connection, _NOTHING)
        if not lost & LOST_THERE:
            self._put(connection, (*there, message), back, lost)

    def _put(self, connection: Connection, there: There, back: Back, lost: int) -> None:
        if there or back or lost:
            self._carried[connection] = there, back, lost
        else:
            self._carried.pop(connection, None)

    # Processes --------------------------------------------------------------------------------------------------------

    def _known(self, place: int) -> Known:
        return self._parts.behaviours[place].states[self._processes[place]]

    def tell(self, place: int, what: Input) -> None:
        behaviour = self._parts.behaviours[place]
        self._processes[place] = number = behaviour.after(self._processes[place], self._now, what)
        known = behaviour.states[number]
        for number_of_connection, message in known.sent:
            self._send((place, number_of_connection), message)
        for connection in [key for key in self._carried if key[0] == place and key[1] not in known.connections]:
            there, _, _ = self._carried[connection]  # nobody is there any more to hear
            self._put(connection, there, (), 0)
        if known.noted:
            everyone = [self._known(each) for each in range(len(self._processes))]
            self._history = self._parts.told.after(self._history, self._now, place, everyone)
        self._trouble = self._trouble or known.trouble

    def passes(self, moment: float) -> None:
        self._now = moment
        for place in range(len(self._processes)):
            if place not in self._paused and self._known(place).looks_at <= moment + SAME_MOMENT:
                self.tell(place, ("wakes",))

    def goes_on(self, place: int) -> None:
        self._paused = tuple(each for each in self._paused if each != place)
        self.tell(place, ("wakes_late",))

    def close(self) -> None:
        for place in range(len(self._processes)):
            if not self._known(place).is_dead:
                self.tell(place, ("closes",))
        self.wait(CLOSING, is_closing=True)

    def wait(self, seconds: float, is_closing: bool = False) -> None:
        """For so long everything happens in one order: what arrives, arrives at once."""
        until = self._now + seconds
        places = range(len(self._processes))
        while self._trouble is None and self._now < until:
            if self._carry_one():
                continue
            if is_closing and not any(self._known(place).left for place in places):
                return
            self.passes(min(until, *(self._known(place).wakes_at for place in places)))

    def _carry_one(self) -> bool:
        for connection, (there, back, _) in sorted(self._carried.items(), key=_connection_of):
            if there:
                self.arrives_there(connection, there[0])
                return True
            if back:
                self.arrives_back(connection, back[0])
                return True
        return False

    # Faults -----------------------------------------------------------------------------------------------------------

    def loses_there(self, connection: Connection, message: Message) -> None:
        _, back, lost = self._carried[connection]
        is_open = connection[1] in self._known(connection[0]).connections
        self._put(connection, (), back, lost | LOST_THERE if is_open else 0)

    def loses_back(self, connection: Connection, message: Message) -> None:
        there, _, lost = self._carried[connection]
        self._put(connection, there, (), lost | LOST_BACK)

    def resets(self, connection: Connection) -> None:
        self._carried.pop(connection, None)
        self._node = self._parts.still.hung_up(self._node, connection)
        self.tell(connection[0], ("is_cut_off", connection[1]))

    def restarts(self) -> None:
        self._node = self._parts.still.restart(self._node)
        self._carried.clear()
        for place in range(len(self._processes)):
            for connection in self._known(place).connections:
                self.tell(place, ("is_cut_off", connection))

    def forgets_scripts(self) -> None:
        self._node = self._parts.still.forget_scripts(self._node)

    def dies(self, place: int) -> None:
        self.tell(place, ("dies",))

    def vanishes(self, place: int) -> None:
        """Nothing is said to the node, which does not learn of it any more."""
        before = {key: rest for key, rest in self._carried.items() if key[0] == place and rest[0]}
        self.tell(place, ("dies",))
        self._carried = {key: rest for key, rest in self._carried.items() if key[0] != place}
        for connection, (there, _, _) in before.items():
            self._put(connection, there, (), 0)

    def cancels(self, actor: str) -> None:
        names = [host.name for host in self._parts.plan.hosts]
        self.tell(names.index(actor.partition("/")[0]), ("cancels", actor))

    def stops(self, place: int) -> None:
        self._paused = (*self._paused, place)


_NOTHING: tuple[There, Back, int] = (), (), 0


def _connection_of(carried: Any) -> Connection:
    connection: Connection = carried[0]
    return connection
