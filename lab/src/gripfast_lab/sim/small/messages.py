"""What is on its way in a small world: each message once, so that equal ones are the same."""

from __future__ import annotations

import re
from typing import Any

import hiredis

from gripfast.stores.redis import permit_scripts, scripts

_NAMES = {
    key: name.lower().replace("_", " ")
    for name, script in [*vars(scripts).items(), *vars(permit_scripts).items()]
    if isinstance(script, scripts.Script)
    for key in (script.sha.encode(), script.text.encode())
}


class Message:
    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __str__(self) -> str:
        content = self.content
        return _request(content) if isinstance(content, bytes) else _plain(content)


HANG_UP = Message("hang up")
"""The last thing that is sent on a connection."""


class Messages:
    def __init__(self) -> None:
        self._known: dict[bytes | str, Message] = {}

    def of(self, content: bytes | list[Any]) -> Message:
        """A request, or a list of replies."""
        key = content if isinstance(content, bytes) else repr(content)
        message = self._known.get(key)
        if message is None:
            message = self._known[key] = Message(content)
        return message


def _request(packed: bytes) -> str:
    """For a script: its name, the lock and the owner."""
    reader = hiredis.Reader()
    reader.feed(packed)
    told: list[str] = []
    while words := reader.gets():
        name = words[0].decode().lower()
        if name in ("eval", "evalsha"):
            owners = [words[3 + int(words[2])]] if len(words) > 3 + int(words[2]) else []
            in_full = " in full" if name == "eval" else ""
            told.append(" ".join([_NAMES.get(words[1], "script"), *map(_plain, [words[3], *owners])]) + in_full)
        else:
            told.append(" ".join([name, *map(_plain, words[1:])]))
    return ", ".join(told)


_CARD = re.compile(r" {[^}]*}")
"""Who it is by host and process, which differs from run to run."""


def _plain(reply: Any) -> str:
    if isinstance(reply, list):
        return f"[{', '.join(map(_plain, reply))}]"
    return _CARD.sub("", ascii(reply.decode(errors="replace"))[1:-1]) if isinstance(reply, bytes) else str(reply)
