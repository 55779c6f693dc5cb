"""One connection to a server. PyMySQL makes it (names, TLS, authentication), then its socket is ours."""

from __future__ import annotations

import _socket
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from gripfast.interrupts.graves import Grave, plain
from gripfast.stores.mysql import packets
from gripfast.stores.mysql.packets import AnswerReader
from gripfast.stores.mysql.scripts import Setting
from gripfast.stores.sql.ports import Answer, Refusal
from gripfast.stores.sql.statement import Query, Statement, Value

_CHUNK = 65536

_DROP_UNSENT = struct.pack("ii", 1, 0)
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class MysqlWire:
    is_proxied = False

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.session = 0
        self.birth = ""
        self._sock = sock
        self._grave = Grave.dig(self, sock)
        self._unsent = b""
        self._reader: AnswerReader | None = None
        """None while nothing is under way."""
        self._in_force: dict[Statement, Mapping[str, Value]] = {}

    @classmethod
    def taken_from(cls, connection: Any) -> MysqlWire:
        """The socket of a connection of PyMySQL, which knows nothing of it any more: it will neither close it nor say
        goodbye on it."""
        sock, file = connection._sock, connection._rfile
        connection._sock = connection._rfile = None
        connection._closed = True
        wire = cls(sock)
        file.close()
        return wire

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, queries: Sequence[Query]) -> bool:
        """Without settings that are in force already."""
        needed = [query for query in queries if not isinstance(query.statement, Setting) or self._is_new(query)]
        return self.send_packet(packets.query(needed))

    def send_packet(self, packet: bytes) -> bool:
        """Begin a request that is written already."""
        if self._reader is not None:
            raise ConnectionError("the last request on this connection has no complete answer")
        self._unsent = packet
        self._reader = AnswerReader()
        return self.flush()

    def flush(self) -> bool:
        if self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except _LATER:
                return False
            self._unsent = self._unsent[sent:]
        return not self._unsent

    def receive(self) -> Answer | None:
        """Reads until there is nothing more: what TLS has decrypted no longer shows at the descriptor."""
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except _LATER:
                return None
            if not data or self._reader is None:  # unasked it says only that it ends the session
                raise ConnectionResetError("the server closed the connection")
            answer = self._reader.feed(data)
            if answer is not None:
                self._reader = None
                if isinstance(answer, Refusal) and answer.kind != "busy":
                    self._in_force.clear()  # it may have been one of them
                return answer

    def _is_new(self, query: Query) -> bool:
        if self._in_force.get(query.statement) == query.values:
            return False
        self._in_force[query.statement] = query.values
        return True

    def pushes(self) -> list[str]:
        """The server never says anything unasked."""
        return []

    def cut(self) -> None:
        """Past TLS, whose own shutdown is not for other threads."""
        try:
            _socket.socket.shutdown(plain(self._sock), socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Says goodbye, unless this is a forked child, where the socket is closed already, or a request is under way:
        then what has not left yet never will."""
        try:
            if self._reader is None:
                self._sock.send(packets.QUIT)
            else:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
        except (OSError, ValueError):
            pass
        self._sock.close()
        self._grave.fill()
