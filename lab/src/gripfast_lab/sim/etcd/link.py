"""The connections of a simulated client to the members: production's tries (`Calling`), over the world's network.

`SimLink` does as the asyncio driver: one connection to a member, for requests and watches. `LendingLink` does as the
blocking driver: a connection for each exchange, kept for the next, and one more for watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from gripfast import machine
from gripfast.errors import ClientClosed
from gripfast.stores.etcd import faults, watching
from gripfast.stores.etcd.calling import Calling
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import Request, WatchResponse
from gripfast.stores.etcd.watches import Watch, Watches
from gripfast.stores.faults import Fault
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.etcd.member import Answer, Ask, GiveUp, Member, Status, StreamEnded
from gripfast_lab.sim.network import Connection, Network
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.runtime import SimInbox
from gripfast_lab.sim.world import Cancelled, Promise, running

IDLE_MOST = 8


class Talk:
    """One connection to a member."""

    def __init__(self, connection: Connection, where: str, seen: Callable[[str], None]) -> None:
        """`seen`: told which process has got an answer."""
        self.connection = connection
        self._seen = seen
        self.where = where
        self.is_left = False
        self._numbers = 0
        self._asked: dict[int, Promise[Any]] = {}
        self._watches = Watches()
        connection.receive = self._receive
        connection.ended = self.end

    @property
    def takes_calls(self) -> bool:
        return self.connection.is_open and not self.is_left

    async def exchange(self, requests: Sequence[Request[Any]], until: float, with_leader: bool) -> list[Any]:
        process = self.connection.process
        seconds, asked = until - process.now(), [self._ask(request, with_leader) for request in requests]
        timer = process.at(until, self._expire, asked, seconds)
        try:
            return [await promise for _, promise in asked]
        except Cancelled:
            self._expire(asked, seconds)
            raise
        finally:
            timer.cancel()
            self.close_if_left()

    def _ask(self, request: Request[Any], with_leader: bool) -> tuple[int, Promise[Any]]:
        self._numbers += 1
        promise: Promise[Any] = Promise()
        if self.takes_calls:
            self._asked[self._numbers] = promise
            self._send(Ask(self._numbers, request, with_leader, self.connection.process.world.now))
        else:
            promise.keep(faults.cut(self.where, None, was_sent=False))
        return self._numbers, promise

    def _expire(self, asked: Sequence[tuple[int, Promise[Any]]], seconds: float) -> None:
        """Their time is over, or nobody waits for them any more."""
        for number, promise in asked:
            if self._asked.pop(number, None) is not None:
                self._send(GiveUp(number))
                promise.keep(faults.not_answered(self.where, seconds))

    def watch(self, watch: Watch, key: bytes, range_end: bytes, revision: int, puts: bool) -> None:
        self._send(self._watches.add(watch, key, range_end, revision, puts))

    def _send(self, message: Any) -> None:
        for cancel in self._watches.cancels():
            self.connection.send(cancel)
        self.connection.send(message)

    def _receive(self, message: Any) -> None:
        if isinstance(message, Answer):
            promise = self._asked.pop(message.number, None)
            if promise is not None:
                if not isinstance(message.answer, Status):
                    self._seen(self.connection.process.name)
                promise.keep(self._judged(message.answer))
        elif isinstance(message, WatchResponse):
            self._watches.got(message)
        elif isinstance(message, StreamEnded):
            self.lose_watches(message.message)

    def _judged(self, answer: Any) -> Any:
        return faults.judged(self.where, *answer) if isinstance(answer, Status) else answer

    def lose_watches(self, why: str = "") -> None:
        watches, self._watches = self._watches, Watches()
        watches.lose_all(why)

    def leave(self) -> None:
        self.is_left = True
        self.lose_watches()
        self.close_if_left()

    def close_if_left(self) -> None:
        if self.is_left and not self._asked:
            self.connection.hang_up()

    def close(self) -> None:
        self.connection.hang_up()
        self.end()

    def end(self) -> None:
        """Nothing comes any more."""
        asked, self._asked = self._asked, {}
        for promise in asked.values():
            promise.keep(faults.cut(self.where, None))
        self.lose_watches()


class SimLink(Calling):
    def __init__(self, network: Network, process: Process, members: Mapping[str, Member], timeout: float) -> None:
        """`members`: by endpoint, in the order in which they are tried."""
        super().__init__(Dialer(tuple(members), timeout))
        self.process = process
        self.inbox = partial(SimInbox, process)
        self._network = network
        self._member_at = members
        self._talks: dict[str, Talk] = {}
        self._left: list[Talk] = []
        self._opening: dict[str, Promise[Talk | Fault]] = {}
        self._takes_watches = True
        self._is_closed = False

    async def watch(
        self,
        key: bytes,
        revision: int,
        notify: Callable[[Notice], None],
        until: float,
        range_end: bytes = b"",
        puts: bool = False,
    ) -> Watch | Fault:
        endpoint = self.members.current
        talk = await self._talk_for_watches(endpoint, until)
        if isinstance(talk, Fault):
            self._leave(endpoint)
            return talk
        if not self._takes_watches:
            return faults.cut(self.where, "the client is being closed", was_sent=False)
        watch = Watch(notify)
        talk.watch(watch, key, range_end, revision, puts)
        return watch

    async def _talk_for_watches(self, endpoint: str, until: float) -> Talk | Fault:
        return await self._talk(endpoint, until)

    async def _exchange(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        talk = await self._talk(endpoint, until)
        if isinstance(talk, Fault):
            return [talk.copy() for _ in requests]
        return await talk.exchange(requests, until, with_leader)

    async def _log_in(self, endpoint: str, old: str | None, until: float) -> Fault | None:
        return None

    # -- connections -----------------------------------------------------------------------------------------------

    async def _talk(self, endpoint: str, until: float) -> Talk | Fault:
        """By one try for all who need it."""
        talk = self._talks.get(endpoint)
        if talk is not None and talk.takes_calls:
            return talk
        if self._is_closed:
            raise ClientClosed
        opening = self._opening.get(endpoint)
        if opening is None:
            opening = self._opening[endpoint] = Promise()
            self.process.start(f"{self.process.name}/connects", self._open(endpoint, opening))
        made: Promise[Talk | Fault] = Promise()
        self.process.at(until, made.keep, faults.not_connected(self._dialer.where_is(endpoint), TimeoutError()))
        _forward(self.process, opening, made)
        return await made

    async def _open(self, endpoint: str, opening: Promise[Talk | Fault]) -> None:
        made = await self._dial(endpoint, self.process.now() + self.timeout)
        self._opening.pop(endpoint, None)
        if isinstance(made, Talk):
            if (before := self._talks.get(endpoint)) is not None:
                self._left.append(before)
            self._talks[endpoint] = made
        opening.keep(made)

    async def _dial(self, endpoint: str, until: float) -> Talk | Fault:
        connection, accepted = self._network.connect(self.process, self._member_at[endpoint])
        self.process.at(until, accepted.keep, False)
        try:
            is_made = await accepted
        except Cancelled:
            connection.hang_up()
            raise
        if not is_made:
            connection.hang_up()
            return faults.not_connected(self._dialer.where_is(endpoint), ConnectionError())
        if self._is_closed:
            connection.hang_up()
            return faults.cut(self.where, "the client is closed", was_sent=False)
        return Talk(connection, self._dialer.where_is(endpoint), self._member_at[endpoint].cluster.seen)

    def _leave(self, endpoint: str) -> None:
        self.members.leave(endpoint)
        talk = self._talks.pop(endpoint, None)
        if talk is not None:
            self._left.append(talk)
            talk.leave()
        self._left = [each for each in self._left if each.connection.is_open]

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._takes_watches = False
        for talk in self._all():
            talk.lose_watches()

    async def close(self) -> None:
        self._is_closed = True
        self.stop_waiting()
        for talk in self._all():
            talk.close()

    def _all(self) -> list[Talk]:
        return [*self._left, *self._talks.values()]


class LendingLink(SimLink):
    def __init__(
        self,
        network: Network,
        process: Process,
        members: Mapping[str, Member],
        timeout: float,
        idle_most: int = IDLE_MOST,
    ) -> None:
        super().__init__(network, process, members, timeout)
        self._idle: list[tuple[str, Talk]] = []
        self._idle_most = idle_most
        self._watching: tuple[str, Talk] | None = None

    async def _exchange(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        talk = self._idle_at(endpoint) or await self._dial(endpoint, until)
        if isinstance(talk, Fault):
            return [talk.copy() for _ in requests]
        try:
            answers = await talk.exchange(requests, until, with_leader)
        except Cancelled:
            talk.close()
            raise
        if talk.takes_calls and len(self._idle) < self._idle_most and not self._is_closed:
            self._idle.append((endpoint, talk))
        else:
            talk.close()
        return answers

    def _idle_at(self, endpoint: str) -> Talk | None:
        while self._idle:
            at, talk = self._idle.pop()
            if at == endpoint and talk.takes_calls:
                return talk
            talk.close()
        return None

    async def _talk_for_watches(self, endpoint: str, until: float) -> Talk | Fault:
        """Whoever comes while it is opened opens another: the last stays, and the others are left."""
        if self._watching is not None and self._watching[1].takes_calls:
            return self._watching[1]
        made = await self._dial(endpoint, min(until, self.process.now() + self.timeout))
        if isinstance(made, Talk):
            self._leave_watching()
            self._watching = endpoint, made
        return made

    def _leave(self, endpoint: str) -> None:
        """Watches that are there may be silent, too."""
        super()._leave(endpoint)
        for at, talk in self._idle:
            if at == endpoint:
                talk.close()
        self._idle = [each for each in self._idle if each[0] != endpoint]
        if self._watching is not None and self._watching[0] == endpoint:
            self._leave_watching()

    def _leave_watching(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching[1].close()

    def _all(self) -> list[Talk]:
        watching = [] if self._watching is None else [self._watching[1]]
        return [*super()._all(), *watching, *(talk for _, talk in self._idle)]


def _forward(process: Process, source: Promise[Any], to: Promise[Any]) -> None:
    """What one is kept with keeps the other, which may have been kept before."""

    async def wait() -> None:
        to.keep(await source)

    process.start(f"{process.name}/waits", wait())


# -- clocks and chance of production ---------------------------------------------------------------------------------


class _Dice:
    def __init__(self, chance: Chance) -> None:
        self.uniform = chance.between


@contextmanager
def virtual_time(processes: Mapping[str, Process], chance: Chance) -> Iterator[None]:
    """While this lasts, `boottime` is the clock of the process whose task runs, and production's dice are the seed's.

    As `machine.advance_boottime` does it: whoever has imported the clock has this one.
    """

    def now() -> float:
        return processes[running().partition("/")[0]].now()

    clock, names = machine.boottime, vars(watching)
    dice = names["random"]
    before = clock.__reduce__()[2]
    clock.__setstate__((now, (), {}, None))  # type: ignore[attr-defined]
    names["random"] = _Dice(chance)
    try:
        yield
    finally:
        clock.__setstate__(before)  # type: ignore[attr-defined]
        names["random"] = dice
