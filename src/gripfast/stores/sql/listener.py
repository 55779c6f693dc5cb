"""Where notifications of releases arrive, in the blocking driver: one connection, and a thread that reads it for all.

The thread is there from the first wait on; it knows nothing of the client but its queues.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
from typing import NamedTuple

from gripfast.interrupts.guard import Guard
from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.stores.sql.descriptors import await_answer
from gripfast.stores.sql.faults import no_answer_in, not_notified
from gripfast.stores.sql.ports import Dialect, Fault, LinkDown, Refusal, Wire
from gripfast.stores.sql.queues import Queues
from gripfast.timed_queue import TimedQueue

_log = logging.getLogger("gripfast.connection")


class BlockingListener:
    def __init__(self, dialect: Dialect, timeout: float, queues: Queues) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._queues = queues
        self._opening = Guard()
        self._thread: ListenerThread | None = None
        self._failed_at = 0.0
        self._failure: Fault | None = None
        self._is_stopped = False

    def listens_to(self, channel: str) -> bool:
        thread = self._thread
        return thread is not None and channel in thread.channels

    async def listen(self, channel: str) -> Fault | None:
        try:
            thread = self._opening.run(self._open, boottime())
        except LinkDown as down:
            return down.fault
        return None if thread.order(channel, True, self._timeout) else thread.fault()

    def session(self) -> int:
        thread = self._thread
        return 0 if thread is None else thread.session

    def unlisten(self, channel: str) -> None:
        thread = self._thread
        if thread is not None and channel in thread.channels:
            thread.order(channel, False, None)

    def stop(self) -> None:
        self._is_stopped = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _open(self, started: float) -> ListenerThread:
        """One try for all who came while it was made."""
        thread = self._thread
        if thread is not None and thread.is_running:
            return thread
        if self._failure is not None and self._failed_at >= started:
            raise LinkDown(self._failure)
        try:
            wire = self._dialect.dial(self._timeout, is_shared=True)
            if wire.is_proxied:
                wire.close()
                raise LinkDown(not_notified(self._dialect.where))
        except LinkDown as down:
            self._failed_at, self._failure = boottime(), down.fault
            raise
        thread = self._thread = ListenerThread(wire, self._dialect, self._queues, self._timeout)
        thread.start()  # known before: an interrupt in between leaves no thread that nobody could stop
        if self._is_stopped:
            thread.stop()
        return thread


class Order(NamedTuple):
    channel: str
    is_wanted: bool
    done: TimedQueue[bool]


class ListenerThread:
    def __init__(self, wire: Wire, dialect: Dialect, queues: Queues, timeout: float) -> None:
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self.channels: set[str] = set()
        self._is_wanted = True
        self._thread = Background(self._run, "gripfast-listener")
        self._pid = os.getpid()
        self.session = wire.session
        self._wire = wire
        self._dialect = dialect
        self._queues = queues
        self._timeout = timeout
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._trouble: Fault | None = None

    @property
    def is_running(self) -> bool:
        return self._is_wanted and self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_wanted = False
        self._wake()

    def __del__(self) -> None:
        for each in (getattr(self, "_woken", None), getattr(self, "_waker", None)):
            if each is not None:
                each.close()

    def order(self, channel: str, is_wanted: bool, seconds: float | None) -> bool:
        """Whether it was carried out, if that is waited for."""
        done: TimedQueue[bool] = TimedQueue()
        self._orders.put(Order(channel, is_wanted, done))
        self._wake()
        if seconds is None:
            return True
        if not self.is_running:
            self._give_up()  # it may have ended just before: nobody else would answer
        try:
            return done.get(seconds)
        except queue.Empty:
            return False

    def fault(self) -> Fault:
        return self._trouble or no_answer_in(self._dialect.where, self._timeout)

    def _wake(self) -> None:
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):  # it is over, or has been woken often enough
                self._waker.send(b"!")

    def _run(self) -> None:
        try:
            while self._is_wanted:
                self._carry_out(self._next_orders())
                if isinstance(said := self._wire.receive(), Refusal):  # unasked: it ends the session
                    raise LinkDown(self._dialect.refused(said))
                self._pass_on()
        except OSError as error:
            what = "%s: the connection for release notifications broke (%s); the next waiter makes a new one"
            _log.info(what, self._dialect.where, error, extra={"gripfast_store": self._dialect.where})
        except LinkDown as down:
            self._trouble = down.fault
        finally:
            self._end()

    def _next_orders(self) -> list[Order]:
        """Waits until there are some, or something has arrived."""
        orders = self._drain()
        if not orders:
            poller = select.poll()
            poller.register(self._wire.fileno(), select.POLLIN)
            poller.register(self._woken.fileno(), select.POLLIN)
            if any(fd == self._woken.fileno() for fd, _ in poller.poll()):
                self._woken.recv(512)
            orders = self._drain()
        return orders

    def _drain(self) -> list[Order]:
        orders: list[Order] = []
        with contextlib.suppress(queue.Empty):
            while True:
                orders.append(self._orders.get_nowait())
        return orders

    def _carry_out(self, orders: list[Order]) -> None:
        scripts = self._dialect.scripts
        for channel, is_wanted, done in orders:
            queries = scripts.listen(channel) if is_wanted else scripts.unlisten(channel)
            answer = await_answer(self._wire, self._wire.send(queries), boottime() + self._timeout)
            if answer is None:
                raise TimeoutError("no answer to LISTEN")
            if isinstance(answer, Refusal):
                raise LinkDown(self._dialect.refused(answer))
            (self.channels.add if is_wanted else self.channels.discard)(channel)
            done.put(True)
            self._pass_on()  # there may be many orders

    def _pass_on(self) -> None:
        for channel in self._wire.pushes():
            self._queues.wake_channel(channel)

    def _give_up(self) -> None:
        for each in self._drain():
            each.done.put(False)

    def _end(self) -> None:
        self._is_wanted = False
        self.channels.clear()
        self._give_up()
        if self._pid == os.getpid():
            self._wire.close()
        self._woken.close()
        self._waker.close()
        self._queues.wake_first()
