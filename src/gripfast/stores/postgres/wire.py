"""A connection, on libpq as psycopg wraps it: requests out, answers in, and never a wait.

A request of several statements goes as one pipeline with one sync at its end, so it is one transaction unless it says
BEGIN itself. Most of what a claim costs is the server's planning: on a direct connection each statement with places
is prepared, in the same round trip as its first use. A proxy that pools connections hands the next transaction to
another session, where nothing is prepared and nothing is set: there every statement is sent in full, and every request
brings its own limits.

libpq closes its descriptor when it sees the end of a connection, and then the number may be another file's. So there
is a second one for whoever polls, and for a cut from another thread.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from gripfast.interrupts.living import Living
from gripfast.stores.postgres.protocol import kind_of
from gripfast.stores.sql.ports import Answer, Refusal, Rows, SessionGone
from gripfast.stores.sql.statement import Query, Statement, Value

_log = logging.getLogger("gripfast.connection")

_COMMAND_OK = int(ExecStatus.COMMAND_OK)
_TUPLES_OK = int(ExecStatus.TUPLES_OK)
_FATAL_ERROR = int(ExecStatus.FATAL_ERROR)
_PIPELINE_SYNC = int(ExecStatus.PIPELINE_SYNC)

_NOT_PREPARED = {"26000", "42P05"}
"""A prepared statement is not there, or there already: somebody hands sessions around."""


class PostgresWire:
    """Made when a connection begins to be made: from then on a fork and the garbage collector know it."""

    session = 0
    birth = ""
    is_proxied = False
    """Sessions are handed around between transactions: nothing can be kept in one."""
    prepares = False
    before: Query | None = None
    """Goes before every request, in its transaction: before all else, or after BEGIN."""
    _before_at = 0
    _is_open = False
    _fd = -1

    def __init__(self, pgconn: PGconn) -> None:
        self.pgconn = pgconn
        self._maker = os.getpid()
        self._ending = threading.RLock()
        self._ended = ""
        """Why nothing can be requested any more."""
        self._notices = _Notices()
        pgconn.notice_handler = self._notices.receive
        self._names: dict[Statement, bytes] = {}
        """Prepared ones."""
        self._names_given = 0
        self._is_awaited = False
        self._parts: list[Statement | None] | None = None
        """Of the pipeline under way, those not answered yet, last one first: what is prepared, or None for a request's
        own."""
        self._rows: list[Rows] = []
        self._refusal: Refusal | None = None
        self._is_open = True
        _alive.add(self)

    def begin(self) -> None:
        """The connection is made."""
        self._fd = os.dup(self.pgconn.socket)
        self.pgconn.nonblocking = 1
        self.session = self.pgconn.backend_pid

    def fileno(self) -> int:
        return self._fd

    def send(self, queries: Sequence[Query]) -> bool:
        if self._ended:
            raise ConnectionResetError(self._ended)
        if self.before is not None:
            self._before_at = 1 if queries[0].statement.sql.startswith("BEGIN") else 0  # BEGIN is refused behind it
            queries = (*queries[: self._before_at], self.before, *queries[self._before_at :])
        self._rows = []
        self._refusal = None
        self._is_awaited = True
        try:
            name = self._names.get(queries[0].statement) if len(queries) == 1 else None
            if name is not None:
                self.pgconn.send_query_prepared(name, _packed(*queries[0]))
            elif len(queries) > 1 or not self._send_alone(*queries[0]):
                self._send_pipeline(queries)
            return self.pgconn.flush() == 0
        except psycopg.Error as error:
            raise self._lost(error) from None
        except BaseException:  # an interrupt, or a value that can't be sent: a part of it may have left
            self._ended = "an earlier request was interrupted"
            raise

    def flush(self) -> bool:
        if self._ended:
            raise ConnectionResetError(self._ended)
        try:
            return self.pgconn.flush() == 0
        except psycopg.Error as error:
            raise self._lost(error) from None

    def receive(self) -> Answer | None:
        if self._ended:
            raise ConnectionResetError(self._ended)
        try:
            self.pgconn.consume_input()
            return self._collected() if self._is_awaited else None
        except psycopg.Error as error:  # what came before the end is still to be read
            if self._is_awaited and (answer := self._collected()) is not None:
                return answer
            self.pgconn.is_busy()  # has the server's last words read
            raise self._lost(error) from None
        except OSError:
            raise
        except BaseException:  # an interrupt: a part of the answer may be lost
            self._ended = "the reading of an answer was interrupted"
            raise

    def pushes(self) -> list[str]:
        channels: list[str] = []
        while self._is_open and (notified := self.pgconn.notifies()) is not None:
            channels.append(f"{notified.relname.decode()} {notified.extra.decode()}".rstrip())
        return channels

    def cut(self) -> None:
        if not self._ending.acquire(blocking=False):
            return  # it is being closed, or cut, by another
        try:
            if self._fd >= 0:
                _shut_down(self._fd)
        finally:
            self._ending.release()

    def close(self) -> None:
        with self._ending:
            self._ended = self._ended or "the connection was closed"
            self._end_session()
            self._is_open = False
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._is_open or self._fd >= 0:
            self.close()

    def let_go(self) -> None:
        """In a forked child, where the thread that had the lock does not exist."""
        self._ending = threading.RLock()
        self.close()

    def _end_session(self) -> None:
        try:
            if os.getpid() == self._maker:
                self.pgconn.finish()
            elif self._is_open:  # the session is the parent's: not a word to the server
                os.close(self.pgconn.socket)
        except (OSError, psycopg.Error):
            pass

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send_alone(self, statement: Statement, values: Mapping[str, Value]) -> bool:
        """False if it is to be prepared first."""
        if not statement.names:
            self.pgconn.send_query_params(statement.numbered, None)
        elif (name := self._names.get(statement)) is not None:
            self.pgconn.send_query_prepared(name, _packed(statement, values))
        elif not self.prepares:
            self.pgconn.send_query_params(statement.numbered, _packed(statement, values))
        else:
            return False
        return True

    def _send_pipeline(self, queries: Sequence[Query]) -> None:
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        parts: list[Statement | None] = []
        for statement, values in queries:
            if not self._send_alone(statement, values):
                self._names_given += 1
                name = b"gripfast_%d" % self._names_given
                pgconn.send_prepare(name, statement.numbered)
                parts.append(statement)
                self._names[statement] = name
                pgconn.send_query_prepared(name, _packed(statement, values))
            parts.append(None)
        parts.reverse()
        self._parts = parts
        pgconn.pipeline_sync()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _collected(self) -> Answer | None:
        """The answer, as far as libpq has it: none of these calls waits."""
        pgconn, parts = self.pgconn, self._parts
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if parts is None:
                    break
                if pgconn.status == ConnStatus.BAD:
                    return None
                continue  # in a pipeline, each statement's results end so
            status = result.status
            if status == _PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                break
            prepared = parts.pop() if parts else None
            if status == _TUPLES_OK:
                self._rows.append(_rows(result))
            elif status != _COMMAND_OK:
                self._take_refusal(result, prepared)
                if self._ended:
                    break
            elif prepared is None:
                self._rows.append(Rows([], result.command_tuples or 0))
        else:
            return None
        self._is_awaited = False
        self._parts = None
        if self._refusal is not None:
            return self._refusal
        if self.before is not None:
            del self._rows[self._before_at]
        return self._rows

    def _take_refusal(self, result: PGresult, prepared: Statement | None) -> None:
        if prepared is not None:
            self._names.pop(prepared, None)
        if result.status != _FATAL_ERROR:
            return  # not done, because of one before it
        code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        if not code:
            raise self._lost(result.get_error_message())
        text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        is_fatal = result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC")
        self._refusal = Refusal(kind_of(code, is_fatal), code, text)
        if is_fatal:
            self._ended = text
        if code in _NOT_PREPARED:
            self.prepares = False
            self._names.clear()

    # -- ends --------------------------------------------------------------------------------------------------------

    def _lost(self, error: object) -> ConnectionResetError:
        """The server's last words say more than that it has left."""
        first_line = str(error).partition("\n")[0].removeprefix("consuming input failed: ")
        self._ended = self._notices.last_words or first_line or "the connection has ended"
        return SessionGone(self._ended) if self._notices.last_words else ConnectionResetError(self._ended)


class _Notices:
    """What the server says unrequested."""

    last_words = ""

    def receive(self, notice: PGresult) -> None:
        text = (notice.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if notice.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC"):
            self.last_words = text
        _log.debug("PostgreSQL says: %s", text)


def _packed(statement: Statement, values: Mapping[str, Value]) -> list[bytes | None]:
    packed: list[bytes | None] = []
    for name in statement.names:
        value = values[name]
        if isinstance(value, str):
            packed.append(value.encode())
        elif value is None or isinstance(value, bytes):
            packed.append(value)
        else:
            packed.append(str(value).encode())
    return packed


def _rows(result: PGresult) -> Rows:
    count, columns, get = result.ntuples, range(result.nfields), result.get_value
    return Rows([tuple([get(row, column) for column in columns]) for row in range(count)], count)


def _shut_down(fd: int) -> None:
    """Of which family it is does not matter to shutdown()."""
    try:
        handle = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
    except OSError:
        return
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        handle.detach()


_alive: Living[PostgresWire] = Living()


def _let_go_of_inherited() -> None:
    for wire in _alive:
        wire.let_go()
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_of_inherited)
