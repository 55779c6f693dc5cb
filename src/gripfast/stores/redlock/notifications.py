"""Wake-ups for the blocking driver: one connection per node on which nothing else arrives."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence

from hiredis import HiredisError

from gripfast.core.redlock.ballot import majority
from gripfast.errors import StoreUnavailable
from gripfast.interrupts.guard import Guard
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.listening import LOOK_AROUND, Listening
from gripfast.stores.redis import protocol
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.bundle import READABLE, new_poller
from gripfast.stores.redlock.health import Node, make_all


class Notifications(Listening):
    def __init__(self, nodes: Sequence[Node], inboxes: Inboxes, timeout: float) -> None:
        super().__init__()
        self._wires: dict[int, Wire] = {}
        self._nodes = nodes
        self._inboxes = inboxes
        self._timeout = timeout
        self._opening = Guard()
        self._tries = 0
        self._is_shut = False

    @property
    def is_heard(self) -> bool:
        """At a majority."""
        return len(self._wires) >= majority(len(self._nodes))

    def open(self) -> None:
        try:
            self._opening.run(self._open, self._tries)
        except StoreUnavailable:  # a signal handler came in the middle of its own thread's
            pass

    def can_read(self) -> bool:
        return bool(self._wires)

    def read(self, seconds: float) -> None:
        """The end of a connection has everyone ask, which opens another."""
        poller = new_poller()
        by_fd = {wire.sock.fileno(): (at, wire) for at, wire in self._wires.copy().items()}
        for fd in by_fd:
            poller.register(fd, READABLE)
        # Not for long: connections that others open meanwhile are not among these.
        for fd, _ in poller.poll(min(seconds, LOOK_AROUND) * 1000):
            self._read_from(*by_fd[fd])

    def close(self) -> None:
        """Whoever listens is told of the end, asks, and is told why."""
        self._is_shut = True
        for at, wire in self._wires.copy().items():
            self._end(at, wire)
        self._inboxes.ask_again()

    def _open(self, tries: int) -> None:
        """One try for all who came while it was made."""
        if self._tries != tries:
            return
        channels = {
            at: protocol.new_channel(secrets.token_hex(16))
            for at, node in enumerate(self._nodes)
            if at not in self._wires and node.trouble is None
        }
        makes = {
            at: functools.partial(self._nodes[at].dialer.connect_and_subscribe, channel)
            for at, channel in channels.items()
        }
        for at, wire in make_all(makes, self._nodes, self._timeout).items():
            if isinstance(wire, Wire):
                self._wires[at] = wire
                self._nodes[at].listens_at = channels[at]
        self._tries += 1
        if self._is_shut:
            self.close()

    def _read_from(self, at: int, wire: Wire) -> None:
        """All that is there: what the reader has is not seen by who waits for the socket."""
        try:
            if wire.is_busy:
                raise ConnectionResetError  # an interrupt came in the middle of it
            while (message := wire.hear(0.0)) is not None:
                push = protocol.read_push(message)
                if push is not None:
                    self._inboxes.deliver(push.owner, push.granted)
        except (OSError, HiredisError):
            self._end(at, wire)
            self._inboxes.ask_again()

    def _end(self, at: int, wire: Wire) -> None:
        if self._wires.get(at) is wire:
            self._nodes[at].listens_at = b""
            self._wires.pop(at, None)
        wire.hang_up()  # its reader may be in the middle of it: the last to know it closes it
