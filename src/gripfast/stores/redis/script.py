"""A script, its calls, and its three forms: plain, guarded and acknowledged.

The texts are in `scripts.py` and `permit_scripts.py`. `grace.py` says what the two other forms are for.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

_SERVER = "redis.call('INFO', 'server')"
_REPLICATION = "redis.call('INFO', 'replication')"


IS_OPEN = f" and string.find({_SERVER}, ARGV[#ARGV - 1], 1, true) and string.find({_REPLICATION}, ARGV[#ARGV], 1, true)"
"""Whether this server is the incarnation that its client knows to grant: the last two arguments name it."""


class Script:
    """A script's text and what stands before the keys in a packed call of it, by its hash and in full.

    `text` may be a function. It is told what has to hold besides, as " and …" in Lua, wherever something is granted.
    """

    def __init__(
        self,
        text: str | Callable[[str], str],
        keys: int,
        arguments: int,
        is_believed: bool = False,
        is_acked: bool = False,
    ) -> None:
        self.is_believed = is_believed
        """A lease is dated by its answer, or a limit is in force: with `replicas=N`, so many have to acknowledge what
        it wrote."""
        self.is_acked = is_acked
        """It is followed by WAIT."""
        self._make = text
        self._keys = keys
        self._arguments = arguments
        self.text = text if isinstance(text, str) else text("")
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        parts = 3 + keys + arguments
        self.by_hash = f"*{parts}\r\n$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n$1\r\n{keys}\r\n".encode()

    def in_full(self, packed: bytes) -> bytes:
        """The same call with the text, for a server that has forgotten the script."""
        return self._in_full + packed[len(self.by_hash) :]

    @functools.cached_property
    def _in_full(self) -> bytes:
        parts, size = 3 + self._keys + self._arguments, len(self.text.encode())
        return f"*{parts}\r\n$4\r\nEVAL\r\n${size}\r\n{self.text}\r\n$1\r\n{self._keys}\r\n".encode()

    @functools.cached_property
    def guarded(self) -> Script:
        """It grants only if the server is the incarnation that two more arguments name (`grace.py`)."""
        return self if isinstance(self._make, str) else self._with(is_acked=False)

    @functools.cached_property
    def acked(self) -> Script:
        """The same, and it is followed by WAIT (`followers.py`)."""
        return self._with(is_acked=True)

    def call(self, form: Script, packed: bytes, arguments: bytes) -> bytes:
        """The call of another form of this script."""
        return form.by_hash + packed[len(self.by_hash) :] + arguments

    def _with(self, is_acked: bool) -> Script:
        make = self._make
        text = make if isinstance(make, str) else make(IS_OPEN)
        return Script(text, self._keys, self._arguments + 2, self.is_believed, is_acked)
