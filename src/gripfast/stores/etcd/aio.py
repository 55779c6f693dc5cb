"""The asyncio driver: one connection that all tasks share, for requests and watches alike.

Requests of one turn of the loop leave together. A connection is made on a thread (names and TLS take time), by one try
for all who need it; after that the loop itself reads and writes. One that is left goes on until its calls have ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.bounded import Call as Dialing
from gripfast.errors import ClientClosed, ConfigurationError
from gripfast.machine import boottime
from gripfast.stores.etcd import faults
from gripfast.stores.etcd.calling import Calling
from gripfast.stores.etcd.conversation import Call, Conversation
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import Request
from gripfast.stores.etcd.watches import Watch
from gripfast.stores.etcd.wire import Wire
from gripfast.stores.faults import Fault
from gripfast.stores.local_aio import AioInbox


class AioWire(Wire):
    """A connection on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, conversation: Conversation) -> None:
        super().__init__(sock, conversation)
        self._loop = loop
        self._is_flushing = False
        self._is_writing = False
        self._is_crowded = False
        """Several requests left in the last turn of the loop."""
        try:
            loop.add_reader(sock, self._run, self.receive)
        except NotImplementedError:
            raise ConfigurationError(
                "etcd needs an event loop with add_reader(): on Windows use asyncio.SelectorEventLoop"
            ) from None

    def is_fit(self) -> bool:
        """After a pause of the loop or of the process, its member may have closed it: that is looked at first."""
        if self.conversation.takes_calls and not self.conversation.calls_open:
            self._run(self.receive)
        return self.conversation.takes_calls

    def send_soon(self) -> None:
        """At once if nothing else is under way; otherwise with everything else of this turn of the loop."""
        if self._is_flushing:
            return
        if not self._is_crowded and self.conversation.calls_open == 1:
            self._run(self.flush)
        else:
            self._is_flushing = True
            self._loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._is_flushing = False
        self._is_crowded = self.conversation.calls_waiting > 1
        self._run(self.flush)

    def _run(self, step: Callable[[], None]) -> None:
        """An interrupt in the middle of it ends the connection: what was read or written is not known."""
        if not self.conversation.is_open:
            return
        try:
            step()
            self.look_around()
        except BaseException:
            self.break_off()
            raise

    def look_around(self) -> None:
        """Go on writing, or close what is over."""
        if self.conversation.is_over:
            self.break_off()
        elif bool(self._unsent) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._loop.add_writer(self.sock, self._run, self.flush)
            else:
                self._loop.remove_writer(self.sock)

    def break_off(self) -> None:
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock)
            self._loop.remove_writer(self.sock)
            self.close()
        self.conversation.end()


class AioLink(Calling):
    inbox = AioInbox

    def __init__(self, dialer: Dialer) -> None:
        super().__init__(dialer)
        self._loop = asyncio.get_running_loop()
        self._wires: dict[str, AioWire] = {}
        """By member: the one that is used, or was last."""
        self._left: list[AioWire] = []
        self._opening: dict[str, asyncio.Future[AioWire | Fault]] = {}
        self._login: asyncio.Task[Fault | None] | None = None
        self._takes_watches = True
        self._is_closed = False

    # -- requests --------------------------------------------------------------------------------------------------

    async def _exchange(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        wire = await self._wire(endpoint, until)
        if isinstance(wire, Fault):
            return [wire.copy() for _ in requests]
        began, futures = boottime(), [self._loop.create_future() for _ in requests]
        calls: list[Call] = []
        timer = self._loop.call_later(until - began, _expire, wire, calls, until - began)
        try:
            for request, future in zip(requests, futures, strict=True):
                calls.append(wire.conversation.call(request, future, token, with_leader))
            wire.send_soon()
            return [await future for future in futures]
        finally:
            timer.cancel()
            if not all(call.is_over for call in calls):  # nobody waits for them any more
                for call in calls:
                    wire.conversation.cancel(call)
                wire.send_soon()

    async def _log_in(self, endpoint: str, old: str | None, until: float) -> Fault | None:
        if self._login is None or self._login.done():
            self._login = self._loop.create_task(self._log_in_now(endpoint, until))
        trouble = await asyncio.shield(self._login)
        return None if trouble is None else trouble.copy()

    async def _log_in_now(self, endpoint: str, until: float) -> Fault | None:
        (answer,) = await self._exchange(endpoint, [self._login_request()], until, "", True)
        return self._took_token(answer)

    # -- watches ---------------------------------------------------------------------------------------------------

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
        trouble = await self._ready_to_watch(endpoint, until)
        wire = trouble or await self._wire(endpoint, until)
        if isinstance(wire, Fault):
            if wire.kind == "down":
                self._leave(endpoint)
            return wire
        if not self._takes_watches:
            return faults.cut(self.where, "the client is being closed", was_sent=False)
        watch = Watch(notify)
        wire.conversation.watch(watch, key, range_end, revision, puts, self.token or "")
        wire.send_soon()
        return watch

    # -- connections -----------------------------------------------------------------------------------------------

    async def _wire(self, endpoint: str, until: float) -> AioWire | Fault:
        wire = self._wires.get(endpoint)
        if wire is not None and wire.is_fit():
            return wire
        if self._is_closed:
            raise ClientClosed
        opening = self._opening.get(endpoint) or self._open(endpoint)
        await asyncio.wait([opening], timeout=max(0.0, until - boottime()))
        if not opening.done():
            return faults.not_connected(self._dialer.where_is(endpoint), TimeoutError())
        return opening.result()

    def _open(self, endpoint: str) -> asyncio.Future[AioWire | Fault]:
        """What comes of it is everyone's, not to be cancelled."""
        opening: asyncio.Future[AioWire | Fault] = self._loop.create_future()
        self._opening[endpoint] = opening
        try:
            self._dial(endpoint, opening)
        except BaseException as error:
            self._opened(endpoint, opening, faults.not_connected(self._dialer.where_is(endpoint), OSError(str(error))))
            if not isinstance(error, TimeoutError):  # too many hang
                raise
        return opening

    def _dial(self, endpoint: str, opening: asyncio.Future[AioWire | Fault]) -> None:
        dialer, loop = self._dialer, self._loop

        def settle(dialing: Dialing[Any]) -> None:
            if not opening.done():
                self._opened(endpoint, opening, self._dialled(endpoint, dialing))

        def made(dialing: Dialing[Any]) -> None:
            """On another thread."""
            try:
                loop.call_soon_threadsafe(settle, dialing)
            except RuntimeError:  # the loop is closed
                dialing.give_up()

        dialing = dialer.calls.begin(lambda: dialer.connect(endpoint, dialer.timeout), made)
        timer = loop.call_later(dialer.timeout, settle, dialing)
        opening.add_done_callback(lambda _: timer.cancel())

    def _dialled(self, endpoint: str, dialing: Dialing[Any]) -> AioWire | Fault:
        try:
            sock = dialing.outcome()
        except Exception as error:  # whatever it is, somebody waits
            return faults.not_connected(self._dialer.where_is(endpoint), error)
        if self._is_closed:
            sock.close()
            return faults.cut(self.where, "the client is closed", was_sent=False)
        wire = AioWire(self._loop, sock, self._dialer.conversation(endpoint))
        wire.conversation.when_refused = self.watch_refused
        return wire

    def _opened(self, endpoint: str, opening: asyncio.Future[AioWire | Fault], made: AioWire | Fault) -> None:
        self._opening.pop(endpoint, None)
        if isinstance(made, AioWire):
            if (before := self._wires.get(endpoint)) is not None:
                self._left.append(before)
            self._wires[endpoint] = made
        self._left = [wire for wire in self._left if wire.conversation.is_open]
        opening.set_result(made)

    def _leave(self, endpoint: str) -> None:
        self.members.leave(endpoint)
        wire = self._wires.pop(endpoint, None)
        if wire is not None:
            self._left.append(wire)
            wire.conversation.leave()
            wire.look_around()

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._takes_watches = False
        for wire in self._all():
            wire.conversation.lose_watches()

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        self._is_closed = True
        self.stop_waiting()
        for wire in self._all():
            wire.break_off()

    def close_soon(self) -> None:
        """From any thread, and also when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.close_now)
        except RuntimeError:
            self._is_closed = True
            for wire in self._all():
                wire.close()

    def _all(self) -> list[AioWire]:
        return [*self._left, *self._wires.values()]


def _expire(wire: AioWire, calls: Sequence[Call], seconds: float) -> None:
    """Their time is over."""
    for call in calls:
        wire.conversation.expire(call, seconds)
    wire.send_soon()
