"""The patterns of KEYS and SCAN, as regular expressions: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before any."""

from __future__ import annotations

import functools
import re


@functools.lru_cache(maxsize=256)
def compiled(pattern: bytes) -> re.Pattern[bytes]:
    parts, at = [], 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        at += 1
        if letter == b"*":
            parts.append(b".*")
        elif letter == b"?":
            parts.append(b".")
        elif letter == b"[":
            part, at = _set(pattern, at)
            parts.append(part)
        else:
            if letter == b"\\" and at < len(pattern):
                letter = pattern[at : at + 1]
                at += 1
            parts.append(re.escape(letter))
    return re.compile(b"".join(parts), re.DOTALL)


def _set(pattern: bytes, at: int) -> tuple[bytes, int]:
    """What stands in brackets, from behind the opening one, and where it ends; the closing one may be missing."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            members.add(pattern[at + 1])
            at += 2
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            members.update(range(low, high + 1))
            at += 3
        else:
            members.add(pattern[at])
            at += 1
    wanted = [byte for byte in range(256) if (byte in members) != negated]
    return b"[" + b"".join(b"\\x%02x" % byte for byte in wanted) + b"]" if wanted else b"(?!)", at + 1
