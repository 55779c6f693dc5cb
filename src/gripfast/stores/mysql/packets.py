"""The client/server protocol of MariaDB and MySQL, as far as a query needs it: bytes in, answers out, no I/O.

A packet is three bytes of length, one that counts, and a payload. A query of several statements is answered by one
result for each, and each says whether another follows: either an OK, or the number of columns, the columns, an EOF, the
rows, an EOF. An error ends the whole answer. An OK that carries a number, LAST_INSERT_ID, counts as a row of that.
"""

from __future__ import annotations

import itertools
import struct
from binascii import hexlify
from collections.abc import Mapping, Sequence

from gripfast.stores.mysql.protocol import NO_SUCH_SESSION, kind_of
from gripfast.stores.sql.ports import Answer, Refusal, Rows
from gripfast.stores.sql.statement import Query, Statement, Value

QUIT = b"\x01\0\0\0\x01"
ALLOW_SEVERAL_STATEMENTS = b"\x03\0\0\0\x1b\0\0"

_QUERY = b"\x03"
_TOO_LARGE = 0xFFFFFF
_MORE_FOLLOWS = 8

_OK, _LOCAL_FILE, _EOF, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_EOF_MOST = 9
"""What starts like an EOF and has as many bytes is a row."""
_SMALL, _NULL = 251, 251
_SIZES = {252: 2, 253: 3, 254: 8}


Row = tuple[bytes | None, ...]


class ProtocolBroken(ConnectionError):
    """What arrived is no answer to the request."""

    def __init__(self, what: str) -> None:
        super().__init__(f"unexpected data from the server (is it MySQL or MariaDB?): {what}")


def literal(value: Value) -> bytes:
    """Text as hex digits: no character set, quoting or mode of the server can make anything else of it."""
    if isinstance(value, str):
        return b"x'" + hexlify(value.encode()) + b"'"
    if isinstance(value, int | float):
        return repr(value).encode()
    return b"NULL" if value is None else b"x'" + hexlify(value) + b"'"


def filled(statement: Statement, values: Mapping[str, Value]) -> bytes:
    """With the values written out."""
    literals = map(literal, map(values.__getitem__, statement.names))
    return statement.template % dict(zip(map(str.encode, statement.names), literals, strict=True))


def query(queries: Sequence[Query]) -> bytes:
    text = b";".join(itertools.starmap(filled, queries))
    if len(text) + 1 >= _TOO_LARGE:
        raise ValueError(f"a request of {len(text)} bytes is too large")
    return (len(text) + 1).to_bytes(4, "little") + _QUERY + text


class AnswerReader:
    """The answer to one request, from bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._has = 0
        self._needs = 4
        """Until so many bytes are there, there is nothing to do."""
        self._count = 1
        self._results: list[Rows] = []
        self._rows: list[Row] | None = None
        """Of the result that is being read, from its columns on."""
        self._in_columns = False

    def feed(self, data: bytes) -> Answer | None:
        """The answer, when it is complete."""
        self._pieces.append(data)
        self._has += len(data)
        if self._has < self._needs:
            return None
        try:
            return self._read(b"".join(self._pieces) if len(self._pieces) > 1 else data)
        except (IndexError, struct.error):
            raise ProtocolBroken("a packet is shorter than its length says") from None

    def _read(self, data: bytes) -> Answer | None:
        """Packet by packet: an error may come anywhere, an EOF ends the columns of a result, and then its rows."""
        at, end = 0, len(data)
        self._needs = 4
        while end - at >= 4:
            size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            if size == _TOO_LARGE:
                raise ProtocolBroken("a packet of more than 16 MB")
            start, stop = at + 4, at + 4 + size
            if stop > end:
                self._needs = stop - at
                break
            if not size or data[at + 3] != self._count:
                self._check(size, data[at + 3], data[start : start + 1])
            self._count = (data[at + 3] + 1) & 0xFF
            at, first = stop, data[start]
            is_eof = first == _EOF and size < _EOF_MOST
            answer: Answer | None = None
            if first == _ERROR:
                return self._refused(data[start:stop])
            if self._in_columns:  # what they are is known from the text
                self._in_columns = not is_eof
            elif self._rows is None:
                answer = self._take_first(data, start, stop, is_eof)
            elif is_eof:
                answer = self._end_result(Rows(self._rows, len(self._rows)), data, start + 3, stop)
            else:
                self._rows.append(_row(data, start, stop))
            if answer is not None:
                return answer
        self._pieces, self._has = ([data[at:]], end - at) if at < end else ([], 0)
        return None

    def _check(self, size: int, count: int, first: bytes) -> None:
        """A server that ends sends its error unasked: it begins to count anew."""
        if not size:
            raise ProtocolBroken("an empty packet")
        if count != 0 or first[0] != _ERROR:
            raise ProtocolBroken(f"packet number {count} instead of {self._count}")

    def _take_first(self, data: bytes, start: int, stop: int, is_eof: bool) -> Answer | None:
        """Of a result."""
        if data[start] == _OK:
            affected, at = _number(data, start + 1)
            handed_on, at = _number(data, at)
            return self._end_result(Rows([(b"%d" % handed_on,)] if handed_on else [], affected), data, at, stop)
        if is_eof:
            return self._end_result(Rows([], 0), data, start + 3, stop)
        if data[start] == _LOCAL_FILE:
            raise ProtocolBroken("the server asks for a file")
        self._rows, self._in_columns = [], True
        return None

    def _end_result(self, result: Rows, data: bytes, at: int, stop: int) -> Answer | None:
        """The server's status tells whether another follows."""
        if at + 2 > stop:
            raise IndexError
        self._results.append(result)
        self._rows = None
        return None if data[at] & _MORE_FOLLOWS else self._results

    def _refused(self, payload: bytes) -> Answer:
        code = int.from_bytes(payload[1:3], "little")
        if code == NO_SUCH_SESSION:
            return [*self._results, Rows([], 0)]
        text = payload[9:] if payload[3:4] == b"#" else payload[3:]
        return Refusal(kind_of(code), str(code), text.decode(errors="replace"))


def _row(data: bytes, at: int, stop: int) -> Row:
    values: list[bytes | None] = []
    while at < stop:
        size = data[at]
        at += 1
        if size == _NULL:
            values.append(None)
            continue
        if size > _SMALL:
            size, at = _number(data, at - 1)
        values.append(data[at : at + size])
        at += size
    if at != stop:
        raise IndexError
    return tuple(values)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    first = data[at]
    if first < _SMALL:
        return first, at + 1
    if first not in _SIZES:
        raise IndexError
    end = at + 1 + _SIZES[first]
    return int.from_bytes(data[at + 1 : end], "little"), end
