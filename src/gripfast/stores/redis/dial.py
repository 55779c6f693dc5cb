"""How a connection begins: redis-py makes it (names, TLS, passwords, database), then its socket is ours.

Connections of both colours begin here, on whatever thread; the asyncio adapter has one for this alone.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any, cast

import redis
from hiredis import HiredisError, ReplyError
from redis.backoff import NoBackoff
from redis.retry import Retry

from gripfast.stores.redis import protocol
from gripfast.stores.redis.faults import LinkDown, no_reply, not_connected, refused
from gripfast.stores.redis.wire import Wire, close_the_dead

_log = logging.getLogger("gripfast.connection")


class Dialer:
    def __init__(
        self, where: str, kind: type[redis.connection.AbstractConnection], settings: Mapping[str, Any], timeout: float
    ) -> None:
        self.where = where
        self.timeout = timeout
        """Seconds that one request may take, and the making of a connection."""
        self._kind = kind
        self._has_looked = False
        self._settings = {
            **settings,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),  # whoever asks has a patience of its own
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, settings.get("socket_connect_timeout") or timeout),
        }

    def dial(self) -> Wire:
        """A connection with nothing under way on it."""
        close_the_dead()
        try:
            connection = self._kind(**self._settings)
            connection.connect()  # type: ignore[no-untyped-call]
        except Exception as error:  # of any kind: names that can't be encoded, a credential provider's own trouble
            raise LinkDown(not_connected(self.where, error)) from None
        wire = Wire(cast(socket.socket, connection._sock), self.timeout)
        connection._sock = None
        _log.info("connected to %s", self.where)
        if not self._has_looked:
            self._look_at(wire)
            self._has_looked = True
        return wire

    def subscribe(self, channel: bytes) -> Wire:
        """A connection on which nothing but the messages of this channel arrives."""
        wire = self.dial()
        reply = self._first_reply(wire, protocol.subscribe(channel))
        if isinstance(reply, ReplyError):
            wire.close()
            raise LinkDown(refused(self.where, reply))
        return wire

    def dial_and_ask(self) -> Wire:
        """One that has answered: a server that is stopped accepts connections, too."""
        wire = self.dial()
        self._first_reply(wire, protocol.command(b"PING"))
        return wire

    def _look_at(self, wire: Wire) -> None:
        """A server that makes room by forgetting keys forgets locks. Only if this user may know."""
        info = self._first_reply(wire, protocol.command(b"INFO", b"memory"))
        if isinstance(info, ReplyError):
            fault = refused(self.where, info)
            if "NOAUTH" in str(fault.error):
                raise LinkDown(fault)
        elif (policy := protocol.read_policy(info)) not in ("", "noeviction"):
            _log.warning(
                "%s may evict locks when its memory is full (maxmemory-policy %s): set it to noeviction",
                self.where,
                policy,
            )

    def _first_reply(self, wire: Wire, packed: bytes) -> Any:
        try:
            return wire.ask(packed)
        except (OSError, HiredisError) as error:
            wire.close()
            raise LinkDown(no_reply(self.where, self.timeout, error)) from None
