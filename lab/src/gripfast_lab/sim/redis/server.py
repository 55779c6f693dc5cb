"""The simulated server: a database, the scripts that it remembers, and who listens to which channel.

A `Session` is one connection. What a client sent goes in as bytes, any number of commands at once, and the replies come
out in order; nothing takes time and nothing is lost here, that is the network's business. Messages for a subscriber go
to the `deliver` that it was connected with, at the moment of the PUBLISH: before the reply of whoever published.

`before` and `after` are told of every command that is carried out; `refusal`, if set, answers all of them instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import hiredis
from hiredis import ReplyError

from gripfast_lab.sim.redis import commands, lua
from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.replies import OK, Reply, integer, unknown_command, wrong_number

Deliver: TypeAlias = Callable[[list[Reply]], None]

SHA_SIZE = 40
NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL."


class Server:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self.database = self._new_database(now_us)
        self.refusal: bytes | None = None
        self.before: Callable[[Session, list[bytes]], None] | None = None
        self.after: Callable[[Session, list[bytes], Reply], None] | None = None
        self._scripts: dict[bytes, str] = {}
        self._listeners: dict[bytes, dict[Session, None]] = {}
        """By channel, in the order in which they came."""

    def connect(self, deliver: Deliver | None = None) -> Session:
        return Session(self, deliver)

    def _new_database(self, now_us: Callable[[], int]) -> Database:
        return Database(now_us, self._publish, self.receivers)

    def receivers(self, channel: bytes) -> int:
        return len(self._listeners.get(channel, ()))

    def forget_scripts(self) -> None:
        self._scripts.clear()

    def script(self, sha: bytes) -> str | None:
        return self._scripts.get(sha) or self._scripts.get(sha.lower())

    def remember(self, text: str) -> bytes:
        """Its hash."""
        sha = lua.sha_of(text).encode()
        self._scripts[sha] = text
        return sha

    def listen(self, session: Session, channel: bytes) -> None:
        self._listeners.setdefault(channel, {})[session] = None

    def ignore(self, session: Session, channel: bytes) -> None:
        listeners = self._listeners.get(channel, {})
        listeners.pop(session, None)
        if not listeners:
            self._listeners.pop(channel, None)

    def _publish(self, channel: bytes, payload: bytes) -> int:
        listeners = self._listeners.get(channel)
        if listeners is None:
            return 0
        sessions = list(listeners)  # whoever is told may leave
        for session in sessions:
            if session.deliver is not None:
                session.deliver([b"message", channel, payload])
        return len(sessions)


class Session:
    __slots__ = ("_channels", "_reader", "_server", "deliver")

    def __init__(self, server: Server, deliver: Deliver | None) -> None:
        self.deliver = deliver
        self._server = server
        self._reader = hiredis.Reader()
        self._channels: dict[bytes, None] = {}

    def receive(self, packed: bytes) -> list[Reply]:
        """The replies to all commands that are complete now; the rest waits for more bytes."""
        reader, replies = self._reader, list[Reply]()
        reader.feed(packed)
        while (words := reader.gets()) is not False:
            if words:
                self._answer(words, replies)
        return replies

    def close(self) -> None:
        """The server has noticed that the client is gone."""
        for channel in self._channels:
            self._server.ignore(self, channel)
        self._channels.clear()

    def _answer(self, words: list[bytes], replies: list[Reply]) -> None:
        server = self._server
        if server.refusal is not None:
            replies.append(ReplyError(server.refusal.decode()))
            return
        if server.before is not None:
            server.before(self, words)
        name = words[0]
        special = _SPECIAL.get(name) or _SPECIAL.get(name.upper())
        if self._channels and (reply := self._while_subscribed(words)) is not None:
            replies.append(reply)
        elif special is None:
            replies.append(server.database.call(words))
        else:
            try:
                replies += special(self, words)
            except ReplyError as error:
                replies.append(error.with_traceback(None))
        if server.after is not None:
            server.after(self, words, replies[-1])

    def _while_subscribed(self, words: list[bytes]) -> Reply:
        """None if it is one of the commands that a subscriber may send."""
        name = words[0].upper()
        if name == b"PING" and len(words) <= 2:
            return [b"pong", *(words[1:] or [b""])]
        if name in (b"PING", b"SUBSCRIBE", b"UNSUBSCRIBE"):
            return None
        if name not in _SPECIAL and commands.find(name) is None:
            return unknown_command(words)
        return ReplyError(
            f"ERR Can't execute '{name.decode().lower()}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET"
            " are allowed in this context"
        )

    # Commands that are more than a database's -------------------------------------------------------------------------

    def _subscribe(self, words: list[bytes]) -> list[Reply]:
        _at_least(2, words)
        replies: list[Reply] = []
        for channel in words[1:]:
            self._channels[channel] = None
            self._server.listen(self, channel)
            replies.append([b"subscribe", channel, len(self._channels)])
        return replies

    def _unsubscribe(self, words: list[bytes]) -> list[Reply]:
        replies: list[Reply] = []
        for channel in words[1:] or list(self._channels):
            self._channels.pop(channel, None)
            self._server.ignore(self, channel)
            replies.append([b"unsubscribe", channel, len(self._channels)])
        return replies or [[b"unsubscribe", None, 0]]

    def _eval(self, words: list[bytes]) -> list[Reply]:
        count = _count_of_keys(words)
        text = lua.to_text(words[1])
        problem = lua.ENGINE.problem(text)
        if problem is None:
            self._server.remember(text)
        return [problem or lua.ENGINE.evaluate(text, count, words[3:], self._server.database)]

    def _evalsha(self, words: list[bytes]) -> list[Reply]:
        _at_least(3, words)
        if len(words[1]) != SHA_SIZE:
            raise ReplyError(NO_SCRIPT)
        count = _count_of_keys(words)
        text = self._server.script(words[1])
        if text is None:
            raise ReplyError(NO_SCRIPT)
        return [lua.ENGINE.evaluate(text, count, words[3:], self._server.database)]

    def _script(self, words: list[bytes]) -> list[Reply]:
        _at_least(2, words)
        order = words[1].upper()
        if order == b"LOAD":
            _exactly(3, words)
            text = lua.to_text(words[2])
            return [lua.ENGINE.problem(text) or self._server.remember(text)]
        elif order == b"EXISTS":
            _at_least(3, words)
            return [[int(self._server.script(sha) is not None) for sha in words[2:]]]
        elif order == b"FLUSH":
            if len(words) > 3 or (len(words) == 3 and words[2].upper() not in (b"SYNC", b"ASYNC")):
                raise ReplyError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
            self._server.forget_scripts()
            return [OK]
        else:
            raise ReplyError(f"ERR unknown subcommand '{words[1].decode(errors='replace')}'. Try SCRIPT HELP.")


_Special: TypeAlias = Callable[[Session, list[bytes]], list[Reply]]

_SPECIAL: dict[bytes, _Special] = {
    b"EVAL": Session._eval,
    b"EVALSHA": Session._evalsha,
    b"SCRIPT": Session._script,
    b"SUBSCRIBE": Session._subscribe,
    b"UNSUBSCRIBE": Session._unsubscribe,
}


def _count_of_keys(words: list[bytes]) -> int:
    _at_least(3, words)
    count = integer(words[2])
    if count > len(words) - 3:
        raise ReplyError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise ReplyError("ERR Number of keys can't be negative")
    return count


def _at_least(least: int, words: list[bytes]) -> None:
    if len(words) < least:
        raise wrong_number(_full_name(words))


def _exactly(number: int, words: list[bytes]) -> None:
    if len(words) != number:
        raise wrong_number(_full_name(words))


def _full_name(words: list[bytes]) -> str:
    named = words[:2] if words[0].upper() == b"SCRIPT" else words[:1]
    return b"|".join(named).decode(errors="replace").lower()
