"""What commands are given and what they answer: words come in as bytes, replies look as hiredis shows them.

A command that can't be done raises the `ReplyError` that the client is to see; whoever runs it hands that on as the
reply. The texts are those of Redis 7.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TypeAlias

from hiredis import ReplyError

Words: TypeAlias = Sequence[bytes]
Reply: TypeAlias = "int | bytes | list[Reply] | ReplyError | None"

LARGEST = 2**63 - 1
SMALLEST = -(2**63)

_FLOAT = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|(inf(?:inity)?))", re.IGNORECASE)


class Status(bytes):
    """A reply that clients read as bytes, and that scripts see as a table with `ok`."""

    __slots__ = ()


OK = Status(b"OK")


def wrong_type() -> ReplyError:
    return ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")


class UnknownSubcommand(ReplyError):
    """Scripts are not told which: to them it is an unknown command."""


def wrong_number(command: str) -> ReplyError:
    return ReplyError(f"ERR wrong number of arguments for '{command}' command")


def syntax_error() -> ReplyError:
    return ReplyError("ERR syntax error")


def read_only() -> ReplyError:
    return ReplyError("READONLY You can't write against a read only replica.")


def not_an_integer() -> ReplyError:
    return ReplyError("ERR value is not an integer or out of range")


def bad_expiry(command: str) -> ReplyError:
    return ReplyError(f"ERR invalid expire time in '{command}' command")


def unknown_command(words: Words) -> ReplyError:
    shown = b""
    for word in words[1:]:
        if len(shown) >= 128:
            break
        shown += b"'%b' " % _c_string(word)[: 128 - len(shown)]
    return error(b"ERR unknown command '%b', with args beginning with: %b" % (_c_string(words[0])[:128], shown))


def _c_string(word: bytes) -> bytes:
    return word.partition(b"\0")[0]


def one_line(text: bytes) -> bytes:
    """As it fits on the wire."""
    return _c_string(text).replace(b"\r", b" ").replace(b"\n", b" ")


def error(text: bytes) -> ReplyError:
    """As hiredis reads it from there."""
    return ReplyError(one_line(_c_string(text).strip(b"\r\n")).decode(errors="replace"))


def integer(word: bytes) -> int:
    """Only the one way to write it that Redis itself would: no plus, no zeros in front, no spaces."""
    try:
        number = int(word)
    except ValueError:
        raise not_an_integer() from None
    if b"%d" % number != word or not SMALLEST <= number <= LARGEST:
        raise not_an_integer()
    return number


def real(word: bytes) -> float:
    found = _FLOAT.fullmatch(word)
    number = float(word) if found else math.nan
    if not found or (math.isinf(number) and not found[1]):
        raise ReplyError("ERR value is not a valid float")
    return number + 0.0  # there is no negative zero in a sorted set


def shown(number: float) -> bytes:
    return b"%.17g" % number
