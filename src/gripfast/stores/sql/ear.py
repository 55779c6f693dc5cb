"""Where releases are heard, in the blocking colour: one connection, and one thread that reads it for all who wait.

The thread is there while somebody has waited; it knows nothing of the client but who stands in line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
import threading
from typing import NamedTuple

from gripfast.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.sql.faults import no_answer_in, not_told
from gripfast.stores.sql.line import Lines
from gripfast.stores.sql.ports import Dialect, Fault, Wire, WireDown
from gripfast.stores.sql.statement import Ask

_log = logging.getLogger("gripfast.connection")


class Wanted(NamedTuple):
    channel: str
    is_wanted: bool
    done: queue.SimpleQueue[bool]


class Ear:
    def __init__(self, dialect: Dialect, timeout: float, lines: Lines) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._lines = lines
        self._opening = Guard()
        self._listener: Listener | None = None
        self._failed_at = 0.0
        self._failure: Fault | None = None
        self._is_stopped = False

    def hears(self, channel: str) -> bool:
        listener = self._listener
        return listener is not None and channel in listener.heard

    def listen(self, channel: str) -> Fault | None:
        try:
            listener = self._opening.run(self._open, boottime())
        except WireDown as down:
            return down.fault
        return None if listener.want(channel, True, self._timeout) else listener.fault()

    def stop_listening(self, channel: str) -> None:
        listener = self._listener
        if listener is not None and channel in listener.heard:
            listener.want(channel, False, None)

    def stop(self) -> None:
        self._is_stopped = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def _open(self, started: float) -> Listener:
        """One try for all who came while it was made."""
        listener = self._listener
        if listener is not None and listener.is_running:
            return listener
        if self._failure is not None and self._failed_at >= started:
            raise WireDown(self._failure)
        try:
            wire = self._dialect.dial(self._timeout, is_shared=True)
            if wire.is_proxied:
                wire.close()
                raise WireDown(not_told(self._dialect.where))
        except WireDown as down:
            self._failed_at, self._failure = boottime(), down.fault
            raise
        listener = self._listener = Listener(wire, self._dialect, self._lines, self._timeout)
        listener.start()  # known before: an interrupt in between leaves no thread that nobody could stop
        if self._is_stopped:
            listener.stop()
        return listener


class Listener:
    """One connection, and its thread."""

    def __init__(self, wire: Wire, dialect: Dialect, lines: Lines, timeout: float) -> None:
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self.heard: set[str] = set()
        self._is_wanted = True
        self._thread = threading.Thread(target=self._run, name="gripfast-ear", daemon=True)
        self._pid = os.getpid()
        self._wire = wire
        self._dialect = dialect
        self._lines = lines
        self._timeout = timeout
        self._wanted: queue.SimpleQueue[Wanted] = queue.SimpleQueue()
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

    def want(self, channel: str, is_wanted: bool, seconds: float | None) -> bool:
        """Whether it is done, if it is waited for."""
        done: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._wanted.put(Wanted(channel, is_wanted, done))
        self._wake()
        if seconds is None:
            return True
        if not self.is_running:
            self._give_up()  # it may have ended just before: nobody else would answer
        try:
            return done.get(timeout=seconds)
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
                self._serve(self._next())
                self._hear(None)
        except OSError as error:
            _log.info("%s: the connection that listens broke: %s", self._dialect.where, error)
        except WireDown as down:
            self._trouble = down.fault
        finally:
            self._end()

    def _next(self) -> list[Wanted]:
        """What is wanted by now; waits until something is, or something is heard."""
        wanted = self._drain()
        if not wanted:
            poller = select.poll()
            poller.register(self._wire.fileno(), select.POLLIN)
            poller.register(self._woken.fileno(), select.POLLIN)
            if any(fd == self._woken.fileno() for fd, _ in poller.poll()):
                self._woken.recv(512)
            wanted = self._drain()
        return wanted

    def _drain(self) -> list[Wanted]:
        wanted: list[Wanted] = []
        with contextlib.suppress(queue.Empty):
            while True:
                wanted.append(self._wanted.get_nowait())
        return wanted

    def _serve(self, wanted: list[Wanted]) -> None:
        scripts = self._dialect.scripts
        for channel, is_wanted, done in wanted:
            self._request(scripts.listen(channel) if is_wanted else scripts.unlisten(channel))
            (self.heard.add if is_wanted else self.heard.discard)(channel)
            done.put(True)

    def _request(self, asks: list[Ask]) -> None:
        self._wire.send(asks)
        ends = boottime() + self._timeout
        while not self._hear(ends):
            if boottime() >= ends:
                raise TimeoutError("no answer to LISTEN")

    def _hear(self, until: float | None) -> bool:
        """What has arrived, or arrives until then. True if it answers the request that is under way."""
        if until is not None:
            poller = select.poll()
            poller.register(self._wire.fileno(), select.POLLIN | (0 if self._wire.flush() else select.POLLOUT))
            poller.poll(max(0.0, until - boottime()) * 1000)
        answer = self._wire.receive()
        for channel in self._wire.pushes():
            self._lines.wake_channel(channel)
        if answer is None or isinstance(answer, list):
            return answer is not None
        raise WireDown(self._dialect.refused(answer))

    def _give_up(self) -> None:
        for each in self._drain():
            each.done.put(False)

    def _end(self) -> None:
        self._is_wanted = False
        self.heard.clear()
        self._give_up()
        if self._pid == os.getpid():
            self._wire.close()
        self._woken.close()
        self._waker.close()
        self._lines.wake_first()
