"""The blocking colour: threads borrow connections, and wait for their descriptors."""

from __future__ import annotations

import math
import queue
import random
import select
import time
from collections.abc import Callable, Iterable, Sequence

from gripfast.core.ports import Granted
from gripfast.guard import Guard
from gripfast.living import Living
from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox, Nothing
from gripfast.stores.sql.asking import Channel
from gripfast.stores.sql.ear import Ear
from gripfast.stores.sql.faults import all_in_use, broken, gone_is_down, is_read_only, no_answer_in, none_free
from gripfast.stores.sql.line import Lines
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Refusal, Wire, WireDown
from gripfast.stores.sql.statement import Ask

HURRY = 0.05
"""Seconds that a request waits for a connection in use before another one is made."""
SHARED_MOST = 4
"""Connections that requests share."""
IDLE_MOST = 8
"""Connections of their own that are kept for the next who want one."""
TRUSTED = 0.25
"""Seconds after its use in which a connection is not looked at before it is used again."""
SETTLING = 0.25
"""Seconds for an answer that somebody else reads."""


class BlockingChannel:
    def __init__(self, wire: Wire, where: str) -> None:
        self.session = wire.session
        self.birth = wire.birth
        self.is_proxied = wire.is_proxied
        self.is_open = True
        self._wire = wire
        self._where = where
        self._has_answered = False
        self._broken: Fault | None = None
        self._poller = new_poller(wire.fileno())
        self.used_at = 0.0

    def fileno(self) -> int:
        return self._wire.fileno()

    def send(self, asks: Sequence[Ask]) -> None:
        if self._broken is not None:
            return
        try:
            self._wire.send(asks)
        except OSError as error:
            self._broken = self._down(error)

    async def answer(self, until: float) -> Answer | Fault | None:
        wire = self._wire
        try:
            while self._broken is None:
                left = until - boottime()
                is_ready = self._poller(left) if wire.flush() else await_descriptor(wire.fileno(), left, to_write=True)
                if not is_ready:
                    return None
                answer = wire.receive()
                if answer is not None:
                    self._has_answered = True
                    self.used_at = boottime()
                    if isinstance(answer, Refusal) and answer.kind == "gone":
                        self.is_open = False
                    return answer
        except OSError as error:
            self._broken = self._down(error)
        return self._broken

    def cut(self) -> None:
        self.is_open = False
        self._wire.cut()

    def close(self) -> None:
        self.is_open = False
        self._wire.close()

    def _down(self, error: OSError) -> Fault:
        self.is_open = False
        return broken(self._where, error, was_idle=self._has_answered)


class SharedChannels:
    """Those that requests share: as few as do it."""

    def __init__(self, dialect: Dialect, timeout: float, most: int) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._most = most
        self._idle: queue.SimpleQueue[BlockingChannel] = queue.SimpleQueue()
        self._open: Living[BlockingChannel] = Living()
        self._growing = Guard()
        self._reserve: BlockingChannel | None = None
        """For what is urgent while all others are in use."""
        self._failed_at = 0.0
        self._failure: Fault | None = None
        self._is_closed = False

    def borrow(self, started: float, until: float, is_urgent: bool) -> BlockingChannel | Fault:
        if boottime() >= until:
            return none_free(self._dialect.where, self._most, until - started)
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        if is_urgent:
            return self._borrow_reserve(until)
        channel = None if count_open(self._open) else self._growing.run(self._grow, started, 1, until)
        while channel is None:
            left = until - boottime()
            if left <= 0.0:
                return none_free(self._dialect.where, self._most, until - started)
            try:
                return self._idle.get(timeout=min(HURRY, left))
            except queue.Empty:
                channel = self._growing.run(self._grow, started, self._most, until)
        return channel

    def _borrow_reserve(self, until: float) -> BlockingChannel | Fault:
        """Whatever the others wait for, it is not waited for here."""
        if self._reserve is None or not self._reserve.is_open:
            try:
                self._reserve = self._dialled(until)
            except WireDown as down:
                return down.fault
        return self._reserve

    def give_back(self, channel: BlockingChannel) -> None:
        if not channel.is_open or self._is_closed:
            channel.close()
        elif channel is not self._reserve:
            self._idle.put(channel)

    def drop_idle(self, before: float) -> None:
        """Those that have not answered since: they are as old as the one that turned out to be closed, or silent."""
        for _ in range(self._idle.qsize()):
            try:
                channel = self._idle.get_nowait()
            except queue.Empty:
                return
            if channel.used_at < before:
                channel.close()
            else:
                self._idle.put(channel)

    def close(self) -> None:
        self._is_closed = True  # what is still under way closes its own
        self.drop_idle(math.inf)
        if self._reserve is not None:
            self._reserve.cut()  # the watchdog may be in the middle of a request

    def _grow(self, started: float, most: int, until: float) -> BlockingChannel | Fault | None:
        """One try for all who came while it was made; None if there are so many already."""
        if self._failure is not None and self._failed_at >= started:
            return self._failure
        if count_open(self._open) >= most or boottime() >= until:
            return None
        try:
            channel = self._dialled(until)
        except WireDown as down:
            self._failed_at, self._failure = boottime(), down.fault
            return down.fault
        self._open.add(channel)
        return channel

    def _dialled(self, until: float) -> BlockingChannel:
        wire = self._dialect.dial(self._timeout, is_shared=True, within=until - boottime())
        return BlockingChannel(wire, self._dialect.where)


class Reservation:
    """Of a connection that is being made; over when nobody has it, however that came."""


class BlockingLink:
    def __init__(
        self,
        dialect: Dialect,
        timeout: float,
        most: int,
        lines: Lines | None = None,
        claims: dict[str, list[tuple[int, str]]] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """With `lines` and `claims` it is the blocking twin of a link on asyncio, which reads the answers to claims."""
        self.dialect = dialect
        self.timeout = timeout
        self.lines = Lines() if lines is None else lines
        self.claims = {} if claims is None else claims
        self.now = boottime
        self._is_twin = claims is not None
        self._at_end = at_end
        self._shared = SharedChannels(dialect, timeout, min(most, SHARED_MOST))
        self._own_most = most
        self._own_idle: queue.SimpleQueue[BlockingChannel] = queue.SimpleQueue()
        self._own: Living[BlockingChannel] = Living()
        self._reserving = Guard()
        self._reserved: Living[Reservation] = Living()
        self._ear = Ear(dialect, timeout, self.lines)
        self._is_closed = False

    def chance(self) -> float:
        return random.random()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this is the blocking colour

    def inbox(self) -> SessionBlockingInbox:
        return SessionBlockingInbox()

    def turn(self) -> BlockingTurn:
        return BlockingTurn()

    async def ask(
        self, asks: Sequence[Ask], owner: str | None = None, until: float | None = None, is_urgent: bool = False
    ) -> Answer | Fault:
        started = boottime()
        ends = started + self.timeout if until is None else until
        channel = self._shared.borrow(started, ends, is_urgent)
        if isinstance(channel, Fault):
            return channel
        if owner is not None:
            late = self.claims.setdefault(owner, [])
            late.append(session := (0 if channel.is_proxied else channel.session, channel.birth))
        channel.send(asks)
        answer = await channel.answer(ends)
        if answer is None or isinstance(answer, Fault):
            channel.close()
            self._shared.drop_idle(started)
            return no_answer_in(self.dialect.where, ends - started) if answer is None else answer
        if owner is not None and session in late:  # unless whoever gives back has ended it meanwhile
            late.remove(session)
        if is_read_only(answer):
            self.leave_server()
            channel.close()
        self._shared.give_back(channel)
        return gone_is_down(self.dialect, answer)

    def leave_server(self) -> None:
        self._shared.drop_idle(math.inf)
        self._drop_own_idle()

    async def settle(self, owners: Sequence[str]) -> None:
        ends = boottime() + SETTLING
        while self._is_twin and boottime() < ends and any(self.claims.get(owner) for owner in owners):
            time.sleep(0.002)  # noqa: ASYNC251 - this is the blocking colour

    async def open(self) -> BlockingChannel | Fault:
        while True:
            try:
                channel = self._own_idle.get_nowait()
            except queue.Empty:
                break
            if boottime() - channel.used_at < TRUSTED or not has_ended(channel):
                return channel
            channel.close()
        reserved = self._reserving.run(self._reserve)
        if reserved is None:
            return all_in_use(self.dialect.where, self._own_most)
        try:
            channel = BlockingChannel(self.dialect.dial(self.timeout, is_shared=False), self.dialect.where)
        except WireDown as down:
            return down.fault
        self._own.add(channel)
        del reserved
        return channel

    def _reserve(self) -> Reservation | None:
        if count_open(self._own) + len(self._reserved) >= self._own_most:
            return None
        reserved = Reservation()
        self._reserved.add(reserved)
        return reserved

    def give_back(self, channel: Channel) -> None:
        assert isinstance(channel, BlockingChannel)
        if channel.is_open and not self._is_closed and self._own_idle.qsize() < IDLE_MOST:
            self._own_idle.put(channel)
        else:
            channel.close()

    def reads(self, channel: Channel) -> bool:
        return isinstance(channel, BlockingChannel)

    def drop(self, channel: Channel) -> None:
        """Cut first: whoever is in the middle of it closes it when it is let go."""
        channel.cut()

    def hears(self, channel: str) -> bool:
        return self._ear.hears(channel)

    async def listen(self, channel: str) -> Fault | None:
        return self._ear.listen(channel)

    def stop_listening(self, channel: str) -> None:
        self._ear.stop_listening(channel)

    def shut(self) -> None:
        self._ear.stop()

    async def close(self) -> None:
        self._is_closed = True
        self._ear.stop()
        self._shared.close()
        self._drop_own_idle()
        self._at_end()

    def _drop_own_idle(self) -> None:
        while True:
            try:
                self._own_idle.get_nowait().close()
            except queue.Empty:
                return


class BlockingTurn:
    """One thread at a time. Whoever is interrupted while it has it keeps it: then the session is cut."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._free.put(None)

    def take_now(self) -> bool:
        try:
            self._free.get_nowait()
        except queue.Empty:
            return False
        return True

    async def take(self, seconds: float) -> bool:
        try:
            self._free.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def leave(self) -> None:
        self._free.put(None)


class SessionBlockingInbox(BlockingInbox):
    """Hears what is delivered, and the answer of the connection on which its waiter stands in the engine's line."""

    __slots__ = ("_channel",)

    def __init__(self) -> None:
        super().__init__()
        self._channel: Channel | None = None

    def follow(self, channel: Channel) -> None:
        self._channel = channel

    async def hear(self, until: float) -> Granted | None:
        channel, self._channel = self._channel, None
        if channel is None:
            return await super().hear(until)
        push = self.take(0.0)
        if isinstance(push, Nothing) and channel.is_open:
            await_descriptor(channel.fileno(), until - boottime())
            return None
        return None if isinstance(push, Nothing) else push


def await_descriptor(fd: int, seconds: float, to_write: bool = False) -> bool:
    """Whether it can be read (or written) within so many seconds."""
    return fd < 0 or new_poller(fd, to_write)(seconds)


def new_poller(fd: int, to_write: bool = False) -> Callable[[float], bool]:
    """Made once for a descriptor: whether it can be read (or written) within so many seconds."""
    if not hasattr(select, "poll"):
        return lambda seconds: any(select.select([fd], [fd] if to_write else [], [], max(0.0, seconds)))
    poller = select.poll()
    poller.register(fd, select.POLLIN | (select.POLLOUT if to_write else 0))
    return lambda seconds: bool(poller.poll(max(0.0, seconds) * 1000))


def has_ended(channel: Channel) -> bool:
    """Whether the server has closed it, as far as can be seen without asking: nothing else arrives on an idle one."""
    return not channel.is_open or await_descriptor(channel.fileno(), 0.0)


def count_open(channels: Iterable[Channel]) -> int:
    return sum(channel.is_open for channel in channels)
