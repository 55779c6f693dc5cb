"""Scripts, run by the Lua that Redis has (5.1), with what Redis 7.0 gives them and with its conversions both ways.

One Lua runs the scripts of all servers of a process: starting one takes longer than a simulated world, and scripts
leave nothing behind in it (see `prelude`). A script is compiled once for each text. `ENGINE.rewrite`, if set, may
change a text before it is compiled; to its callers the script stays what it was, its hash included.

Not simulated: replies that only RESP3 has ({double=…}, {map=…}), cjson, cmsgpack, struct and bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from hiredis import ReplyError
from lupa import lua51  # type: ignore[import-untyped]

from gripfast_lab.sim.redis import commands, prelude
from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.keyspace import Keyspace
from gripfast_lab.sim.redis.replies import (
    LARGEST,
    OK,
    SMALLEST,
    Reply,
    Status,
    UnknownSubcommand,
    error,
    one_line,
    read_only,
)

EXACT = 10**17
"""Below, Redis shows a number of Lua's with all of its digits."""
UNKNOWN = b"ERR Unknown Redis command called from script"
NOT_FOR_SCRIPTS = frozenset([b"EVAL", b"EVALSHA", b"SCRIPT", b"SUBSCRIBE", b"UNSUBSCRIBE"])


def sha_of(text: str) -> str:
    return hashlib.sha1(to_bytes(text), usedforsecurity=False).hexdigest()


def to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def to_text(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


class Lua:
    def __init__(self) -> None:
        self.rewrite: Callable[[str], str] | None = None
        self._scripts: dict[str, Any] = {}
        self._database: Keyspace | None = None
        self._trouble: BaseException | None = None
        lua = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False, unpack_returned_tuples=True)
        as_function = lua.eval("python.as_function")
        given = [as_function(each) for each in (self._dispatch, self._acl_check, _sha1hex)]
        self._compile, self._run, self._tell, self._list, self._field = lua.eval(prelude.SOURCE)(*given)

    def run(self, text: str, keys: Sequence[bytes], args: Sequence[bytes], database: Database) -> Reply:
        return self.evaluate(text, len(keys), (*keys, *args), database)

    def evaluate(self, text: str, count: int, words: Sequence[bytes], database: Database) -> Reply:
        """The first `count` words are keys."""
        script = self._script(text)
        if isinstance(script, ReplyError):
            return script
        self._database = database
        result = self._run(script, count, *words)
        if self._trouble is not None:  # even if the script caught it
            self._raise_trouble()
        kind = type(result)
        if kind is int or kind is bytes or result is None:
            return result  # type: ignore[no-any-return]
        if kind is float:
            return _truncated(result)
        if result[0] == prelude.FAILURE:
            _, line, problem = result
            return error(b"%b script: %b, on @user_script:%d." % (problem, sha_of(text).encode(), line))
        return self._read(*result)

    def problem(self, text: str) -> ReplyError | None:
        """Why it can't be compiled."""
        script = self._script(text)
        return script if isinstance(script, ReplyError) else None

    def _script(self, text: str) -> Any:
        if self.rewrite is not None:
            text = self.rewrite(text)
        script = self._scripts.get(text)
        if script is None:
            script = self._compile(to_bytes(text))
            if isinstance(script, bytes):
                return error(b"ERR Error compiling script (new function): " + script)
            self._scripts[text] = script
        return script

    # From Lua ---------------------------------------------------------------------------------------------------------

    def _read(self, tag: int, size: int, *values: Any) -> Reply:
        if tag == prelude.LIST:
            return [each if type(each) is bytes or type(each) is int else self._read_one(each) for each in values]
        return error(values[0]) if tag == prelude.ERROR else Status(one_line(values[0]))

    def _read_one(self, value: Any) -> Reply:
        if value is True:
            return 1
        if type(value) is float:
            return _truncated(value)
        return self._read(*self._tell(value)) if lua51.lua_type(value) == "table" else None

    # To Lua -----------------------------------------------------------------------------------------------------------

    def _dispatch(self, *words: Any) -> Any:
        """What `redis.call` was given. Errors are handed back as tables: Python's can't be caught by Lua."""
        try:
            for word in words:
                if type(word) is not bytes:
                    words = tuple([each if type(each) is bytes else _as_word(each) for each in words])
                    break
            command = commands.COMMANDS.get(words[0]) if words else None
            if command is None:
                command = self._other_command(words)
            _, run, least, most, writes = command
            if not least <= len(words) <= most:
                raise ReplyError("ERR Wrong number of args calling Redis command from script")
            if writes and self._database.is_read_only:  # type: ignore[union-attr]
                raise read_only()
            reply = run(self._database, words)  # type: ignore[arg-type]
        except ReplyError as refusal:
            return self._field(b"err", UNKNOWN if isinstance(refusal, UnknownSubcommand) else str(refusal).encode())
        except BaseException as trouble:
            self._trouble = trouble
            raise
        kind = type(reply)
        if kind is int or kind is bytes:
            return reply
        if reply is None:
            return False
        if kind is list:
            return (None, *[each if type(each) is bytes else self._shown(each) for each in reply])  # type: ignore[union-attr]
        return True if reply is OK else self._shown(reply)

    @staticmethod
    def _other_command(words: tuple[bytes, ...]) -> commands.Command:
        if not words:
            raise ReplyError("ERR Please specify at least one argument for this redis lib call")
        name = words[0].upper()
        if name in NOT_FOR_SCRIPTS:
            raise ReplyError("ERR This Redis command is not allowed from script")
        command = commands.find(name)
        if command is None:
            raise ReplyError(UNKNOWN.decode())
        return command

    def _shown(self, reply: Reply) -> Any:
        """A reply inside a list may be a list itself, or nothing."""
        if isinstance(reply, Status):
            return self._field(b"ok", bytes(reply))
        if isinstance(reply, list):
            return self._list(*[each if type(each) is bytes else self._shown(each) for each in reply])
        return False if reply is None else reply

    def _acl_check(self, *words: Any) -> Any:
        """Whether the command may be run: if there is such a one, it may."""
        try:
            name, *_ = [each if type(each) is bytes else _as_word(each) for each in words]
        except ReplyError as refusal:
            return self._field(b"err", str(refusal).encode())
        if commands.find(name) or name.upper() in NOT_FOR_SCRIPTS:
            return True
        return self._field(b"err", b"ERR Invalid command passed to redis.acl_check_cmd()")

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        assert trouble is not None
        raise trouble


def _as_word(value: Any) -> bytes:
    if type(value) is int and -EXACT < value < EXACT:
        return b"%d" % value
    if type(value) is int or type(value) is float:
        return b"%.17g" % value
    raise ReplyError("ERR Lua redis lib command arguments must be strings or integers")


def _sha1hex(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _truncated(number: float) -> int:
    """As a C compiler does it on the usual machines: what does not fit becomes the smallest."""
    return int(number) if SMALLEST <= number <= LARGEST else SMALLEST


ENGINE = Lua()
