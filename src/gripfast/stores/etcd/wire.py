"""One connection of the blocking driver: bytes out, bytes in.

The socket itself never blocks, and whoever waits for it does so until a moment: signals restart a receive time-out of
the kernel, and a server that sends a byte now and then never lets one end.
"""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.interrupts.graves import Grave
from gripfast.machine import boottime
from gripfast.stores.etcd import faults
from gripfast.stores.etcd.conversation import Conversation
from gripfast.stores.etcd.messages import Request

CHUNK = 65_536


class Answer:
    """Takes what a call ends with."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Any = None

    def done(self) -> bool:
        return self.answer is not None

    def set_result(self, answer: Any, /) -> None:
        self.answer = answer


class Wire:
    """Whoever has it has it alone, and after an interrupt nobody takes it again."""

    def __init__(self, sock: socket.socket, conversation: Conversation) -> None:
        self.sock = sock
        self.conversation = conversation
        self._grave = Grave.dig(self, sock)
        self._unsent = b""
        self._blocks = would_block(sock)
        self._has_pending = getattr(sock, "pending", _nothing)
        self._poll = _poll_of(sock)
        sock.setblocking(False)

    def exchange(self, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool) -> list[Any]:
        """An answer for each. Those that have none by then are cancelled.

        A member sends a PING with nearly every answer, to measure the network. The reply leaves with the next request:
        nobody is in a hurry, and a packet costs more than our work for it."""
        conversation, began, is_late = self.conversation, boottime(), False
        calls = [(conversation.call(request, answer := Answer(), token, with_leader), answer) for request in requests]
        for call, answer in calls:
            while answer.answer is None:
                if self._unsent or conversation.is_urgent:
                    self.flush()
                if not self.wait(until):
                    conversation.expire(call, until - began)
                    is_late = True
                    break
                self.read()
        if is_late or self._unsent:
            self.flush()  # also that those were given up
        return [answer.answer for _, answer in calls]

    def refresh(self) -> bool:
        """Whether it can be used, after it was idle: its member may have said goodbye meanwhile."""
        if self.wait(0.0):
            self.read()
        return self.conversation.takes_calls

    def wait(self, until: float) -> bool:
        """Until something can be read, or written if something has to be. False if it is too late."""
        if not self.conversation.is_open or self._has_pending():
            return True
        seconds = max(0.0, until - boottime())
        if self._poll is not None and not self._unsent:
            return bool(self._poll(math.ceil(seconds * 1000)))
        return _wait(self.sock, bool(self._unsent), seconds)

    def receive(self) -> None:
        """What has arrived; and send what there is to say to that."""
        self.read()
        if self.conversation.is_open and (self._unsent or self.conversation.has_output):
            self.flush()

    def read(self) -> None:
        """What has arrived. Somebody has to flush what there is to say to that."""
        conversation = self.conversation
        try:
            while conversation.is_open:
                data = self.sock.recv(CHUNK)
                if not data:
                    conversation.end(faults.cut(conversation.where, None))
                    return
                conversation.receive(data)
                if len(data) < CHUNK and not self._has_pending():
                    break
        except self._blocks:
            pass
        except OSError as error:
            conversation.end(faults.cut(conversation.where, error))

    def flush(self) -> None:
        """As much as the system takes."""
        conversation = self.conversation
        data = self._unsent + conversation.to_send() if self._unsent else conversation.to_send()
        try:
            while data:
                data = data[self.sock.send(data) :]
        except self._blocks:
            pass
        except OSError as error:
            conversation.end(faults.cut(conversation.where, error))
        self._unsent = data

    def hang_up(self) -> None:
        """From another thread: whoever waits for it is told of the end."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()
        self._grave.fill()


def would_block(sock: socket.socket) -> tuple[type[Exception], ...]:
    """What it raises if it can't be read or written now."""
    if not hasattr(sock, "pending"):
        return BlockingIOError, InterruptedError
    import ssl

    return BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError


def _poll_of(sock: socket.socket) -> Callable[[float], Any] | None:
    """A poller that is made once. None where sockets are others than the system's: gevent waits in its own way."""
    if not hasattr(select, "poll") or type(sock).__module__ not in ("socket", "ssl"):
        return None
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLIN)
    return poller.poll


def _wait(sock: socket.socket, writes: bool, seconds: float) -> bool:
    """Until it can be read, or, with `writes`, written."""
    try:
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(sock, select.POLLIN | (select.POLLOUT if writes else 0))
            return bool(poller.poll(math.ceil(seconds * 1000)))
        return any(select.select([sock], [sock] if writes else [], [], seconds))
    except (OSError, ValueError):  # it was closed: whoever reads it is told why
        return True


def _nothing() -> int:
    return 0
