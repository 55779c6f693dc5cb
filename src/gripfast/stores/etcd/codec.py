"""The wire format of protobuf, as far as etcd's messages need it. Pure.

A message is a NamedTuple, and its `FIELDS` say how each of its values is written. `encoder(…)` and `decoder(…)` make
one function for each kind of message, once, so that no table is read while requests are made.

- A value that is its field's default is not written; one of a union always is.
- What is not known is skipped: newer servers say more.
- The last value of a field counts, and parts of a message that come twice are not merged: etcd sends none of these.
- Whatever is malformed raises `Malformed`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MASK = (1 << 64) - 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]


class Malformed(ValueError):
    """Not a message of the kind that is expected."""


class Field(NamedTuple):
    number: int
    kind: str
    """`int64`, `uint64`, `bool`, `bytes`, `string` or `message`."""
    is_many: bool = False
    write: Write | None = None
    """Of a message within a message."""
    read: Read | None = None

    @property
    def wire(self) -> int:
        return VARINT if self.kind in ("int64", "uint64", "bool") else BYTES


def varint(value: int) -> bytes:
    """Negative numbers as protobuf has them: as if they had 64 bits and no sign."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes((each,)) for each in range(0x80)]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & MASK, at + 1
            shift += 7
            if shift > 63:
                raise Malformed("a number has more than ten bytes")
    except IndexError:
        raise Malformed("a truncated number") from None


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(start: bytes, content: bytes) -> bytes:
    """A field whose length is written before it."""
    return start + varint(len(content)) + content


# -- writing -----------------------------------------------------------------------------------------------------------


def encoder(fields: Sequence[Field]) -> Write:
    """For messages whose values are in this order."""
    writers = [_writer(field) for field in fields]

    def write(message: Any) -> bytes:
        return b"".join([writer(value) for value, writer in zip(message, writers) if value])  # noqa: B905 (it is slow)

    return write


def _writer(field: Field) -> Write:
    """Of one value, which is not the default."""
    if field.is_many:
        write_one = one(field)
        return lambda values: b"".join([write_one(value) for value in values])
    return one(field)


def one(field: Field) -> Write:
    """Of one value, even if it is the default."""
    start = tag(field.number, field.wire)
    if field.kind == "bytes":
        return lambda value: start + varint(len(value)) + value
    if field.kind == "string":
        return lambda value: sized(start, value.encode())
    if field.kind == "message":
        write = field.write
        assert write is not None
        return lambda value: sized(start, write(value))
    return lambda value: start + varint(value)


# -- reading -----------------------------------------------------------------------------------------------------------


def decoder(kind: Callable[..., Any], fields: Sequence[Field], defaults: Sequence[Any]) -> Read:
    """`kind(*values)` is made of what was read."""
    known: dict[int, tuple[int, Callable[[Any], Any], bool | None]] = {}
    for place, field in enumerate(fields):
        known[field.number << 3 | field.wire] = place, _reader(field), field.is_many
        if field.is_many and field.wire == VARINT:
            known[field.number << 3 | BYTES] = place, _packed(field), None
    many = [place for place, field in enumerate(fields) if field.is_many]
    get = known.get

    def read(data: bytes) -> Any:
        values = list(defaults)
        for place in many:
            values[place] = []
        at, end = 0, len(data)
        while at < end:
            key, at = read_varint(data, at)
            wire = key & 7
            if wire == VARINT:
                value: Any
                value, at = read_varint(data, at)
            elif wire == BYTES:
                size, at = read_varint(data, at)
                value = data[at : at + size]
                at += size
                if at > end:
                    raise Malformed("a truncated field")
            else:
                at = _skip(key, at, end)
                continue
            if (found := get(key)) is None:
                _check(key)
            elif (is_many := found[2]) is False:
                values[found[0]] = found[1](value)
            elif is_many:
                values[found[0]].append(found[1](value))
            else:
                values[found[0]].extend(found[1](value))
        for place in many:
            values[place] = tuple(values[place])
        return kind(*values)

    return read


def _skip(key: int, at: int, end: int) -> int:
    _check(key)
    size = {FIXED64: 8, FIXED32: 4}.get(key & 7)
    if size is None:
        raise Malformed(f"there is no wire type {key & 7}")
    if at + size > end:
        raise Malformed("a truncated field")
    return at + size


def _check(key: int) -> None:
    if not 0 < key >> 3 < 1 << 29:
        raise Malformed(f"there is no field {key >> 3}")


def _reader(field: Field) -> Callable[[Any], Any]:
    if field.kind == "int64":
        return _signed
    if field.kind == "uint64":
        return int
    if field.kind == "bool":
        return bool
    if field.kind == "bytes":
        return bytes
    if field.kind == "string":
        return _text
    assert field.read is not None
    return field.read


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _packed(field: Field) -> Callable[[bytes], list[Any]]:
    """Many numbers in one field."""
    read_one = _reader(field)

    def read(data: bytes) -> list[Any]:
        at, values = 0, []
        while at < len(data):
            value, at = read_varint(data, at)
            values.append(read_one(value))
        return values

    return read
