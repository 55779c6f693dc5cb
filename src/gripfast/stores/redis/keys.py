"""The keys of one lock: its own, verbatim, and its side keys in the same hash slot.

A side key starts with `{tag}`, by which Redis Cluster places it, and has a NUL behind it, which no name of a lock has:
it can't be taken for one. The tag is the one of the lock's key if that has a proper one, else the whole key. A key
with braces that form no proper tag (`a}b`, `x{}y`) can't be quoted in braces; there a number stands in that falls into
the same slot.
"""

from __future__ import annotations

import functools
import itertools
from binascii import crc_hqx

SLOTS = 16384
MARK = b"\0gripfast:"
LAYOUT = b"gripfast" + MARK + b"layout"
"""The key of the layout's number, one for each database (`stores/layout.py`)."""
MARKER = b"gripfast" + MARK + b"primary"
"""The key of the marker of a server with replicas, one for each database (`grace.py`)."""


def slot(key: bytes) -> int:
    return crc_hqx(_hashed(key), 0) % SLOTS


def settling(key: str) -> bytes:
    """lock, fence, line, places"""
    lock = key.encode()
    return pack(lock, *[side_key(lock, kind) for kind in (b"token", b"line", b"places")])


def renewing(key: str) -> bytes:
    """lock, fence"""
    lock = key.encode()
    if b"{" in lock or b"}" in lock:
        return pack(lock, side_key(lock, b"token"))
    size = len(lock)  # the common case, at once: there may be thousands to renew
    return b"$%d\r\n%b\r\n$%d\r\n{%b}\0gripfast:token\r\n" % (size, lock, size + 17, lock)


def breaking(key: str) -> bytes:
    """broken, note"""
    lock = key.encode()
    return pack(side_key(lock, b"broken"), side_key(lock, b"note"))


def side_key(lock: bytes, kind: bytes) -> bytes:
    tag = _tag(lock)
    return b"{" + tag + b"}" + MARK + kind + (b"" if tag == lock else b":" + lock)


@functools.lru_cache(maxsize=SLOTS)
def stamp_of(slot: int) -> bytes:
    """The key of a slot's stamp (`stores/cluster/stamps.py`), which is in that slot."""
    return b"{" + _short_tag(slot) + b"}" + MARK + b"stamp"


def pack(*arguments: bytes) -> bytes:
    """As arguments of a command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in arguments])


def _hashed(key: bytes) -> bytes:
    """The part of a key that decides its slot."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and start + 1 < end else key


def _tag(lock: bytes) -> bytes:
    tag = _hashed(lock)
    return tag if b"}" not in tag else _stand_ins()[slot(lock)]


def _short_tag(slot: int) -> bytes:
    """Two bytes that fall into this slot: every CRC is that of two bytes, which are computed from it backwards."""
    by_low_byte, crcs = _crcs()
    for crc in range(slot, 1 << 16, SLOTS):
        last = by_low_byte[crc & 0xFF]
        first = by_low_byte[(crc ^ crcs[last]) >> 8]
        tag = bytes((first, last ^ crcs[first] >> 8))
        if b"}" not in tag:
            return tag
    raise AssertionError(f"slot {slot} has no tag")


@functools.cache
def _crcs() -> tuple[dict[int, int], list[int]]:
    """Of single bytes, which differ in their low bytes."""
    crcs = [crc_hqx(bytes((each,)), 0) for each in range(256)]
    return {crc & 0xFF: each for each, crc in enumerate(crcs)}, crcs


@functools.cache
def _stand_ins() -> dict[int, bytes]:
    """A number for every slot, the smallest that falls into it."""
    found: dict[int, bytes] = {}
    for number in itertools.count():
        found.setdefault(slot(b"%d" % number), b"%d" % number)
        if len(found) == SLOTS:
            break
    return found
