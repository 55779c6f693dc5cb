"""From the bytes that a terminal sends to keys: `a`, `up`, `enter`, `escape`, `ctrl-l`. Pasted text is one key, too:
`paste:` and the text. Otherwise a paste could answer a question that nobody has read."""

from __future__ import annotations

import codecs
import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_NAMED = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), "up"),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), "down"),
    **dict.fromkeys(("\x1b[C", "\x1bOC"), "right"),
    **dict.fromkeys(("\x1b[D", "\x1bOD"), "left"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), "end"),
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    **dict.fromkeys("\r\n", "enter"),
    **dict.fromkeys("\x7f\x08", "backspace"),
}


class Keys:
    """What has come of a sequence may not be all of it: it waits here for the rest."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._text)

    def feed(self, data: bytes) -> list[str]:
        self._text += self._decoder.decode(data)
        return self._keys()

    def flush(self) -> list[str]:
        """Nothing more came: an escape that waited for its sequence was the key itself."""
        if self._text.startswith(_PASTE):
            return []
        text, self._text = self._text, ""
        return ["escape", *self.feed(text[1:].encode())] if text else []

    def _keys(self) -> list[str]:
        found: list[str] = []
        while self._text and (taken := self._first()):
            length, key = taken
            self._text = self._text[length:]
            found += [key] if key else []
        return found

    def _first(self) -> tuple[int, str] | None:
        """Its length and name; an empty name if it means nothing here. None if more must come."""
        text = self._text
        if text.startswith(_PASTE):
            end = text.find(_PASTED)
            return None if end < 0 else (end + len(_PASTED), f"paste:{text[len(_PASTE) : end]}")
        if sequence := _SEQUENCE.match(text):
            return sequence.end(), _NAMED.get(sequence[0], "")
        if _BEGUN.fullmatch(text):
            return None
        return 1, _named(text[0])


def _named(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char == "\x1b":
        return "escape"
    if char < " ":
        return f"ctrl-{chr(ord(char) + 96)}"
    return char if char.isprintable() else ""
