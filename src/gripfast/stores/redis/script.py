"""A script, its calls, and its forms: plain, guarded and acknowledged, and for a Cluster the last two with a stamp.

The texts are in `scripts.py` and `permit_scripts.py`. `grace.py` says what the other forms are for.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

_SERVER = "redis.call('INFO', 'server')"
_REPLICATION = "redis.call('INFO', 'replication')"


IS_OPEN = f" and string.find({_SERVER}, ARGV[#ARGV - 1], 1, true) and string.find({_REPLICATION}, ARGV[#ARGV], 1, true)"
"""Whether this server is the incarnation that its client knows to grant: the last two arguments name it."""


_STAMP = "local slot_stamp = table.remove(KEYS, 1)\n"
_IS_STAMPED = " and redis.call('GET', slot_stamp) == ARGV[#ARGV - 1] .. ' ' .. ARGV[#ARGV]"


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
        return self if not self.grants else self._with(is_acked=False)

    @functools.cached_property
    def acked(self) -> Script:
        """The same, and it is followed by WAIT (`followers.py`)."""
        return self._with(is_acked=True)

    @functools.cached_property
    def stamped(self) -> Script:
        """As `guarded`, and only if the stamp of its slot, whose key comes first, names the same incarnation
        (`stores/cluster/stamps.py`)."""
        return self._with(is_acked=False, is_stamped=True)

    @functools.cached_property
    def stamped_and_acked(self) -> Script:
        return self._with(is_acked=True, is_stamped=True)

    @property
    def grants(self) -> bool:
        """It may grant something."""
        return not isinstance(self._make, str)

    def call(self, form: Script, packed: bytes, arguments: bytes, stamp: bytes = b"") -> bytes:
        """The call of another form of this script."""
        return form.by_hash + stamp + packed[len(self.by_hash) :] + arguments

    def _with(self, is_acked: bool, is_stamped: bool = False) -> Script:
        make, and_open = self._make, (_IS_STAMPED if is_stamped else "") + IS_OPEN
        text = (_STAMP if is_stamped else "") + (make if isinstance(make, str) else make(and_open))
        return Script(text, self._keys + is_stamped, self._arguments + 2, self.is_believed, is_acked)
