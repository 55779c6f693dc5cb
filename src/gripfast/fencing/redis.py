"""The fenced write for Redis: token check and commands in one script, which the server runs as one step.

Redis has no transaction that a guard could join and roll back, so the commands come along: nobody else's command runs
between the check and the last of them. The fence is a key of its own, `fence:` + resource, its value the largest token
seen, in decimal digits. While the last one was shared (`fencing/shared.py` has the rule), it is two numbers with a
colon between them: the largest of all, and the largest that was not shared. An older version takes that for no token,
and writes nothing.

What is certain, in this order:

- Nothing is written if a larger token was seen; if the server does not know one of the commands or the user may not
  run it on its keys (asked beforehand from Redis 7.0 on); if the server takes no writes (read only, out of memory, in
  trouble with its disk): the fence is its first write, and would fail first.
- A command that Redis refuses is refused whole, so one command is all or nothing.
- Several are not: Redis undoes nothing. If one of them fails (WRONGTYPE, a wrong number of arguments), those before it
  stay written, it and those after it are not, and the error says which one it was. One command that does it all (MSET,
  HSET with many fields) is safer than several, and the one that might fail goes first.

Forgetting, with `keep`. The fence goes `keep` seconds after the last write or after the token's own time, whichever is
later; without a fence, tokens older than the server's time − `keep` are refused. Tokens are microseconds of engine
time, so whatever the forgotten fence would have refused is older than that: nobody stale gets in, however the clocks
of lock and resource differ. (A server clock that is set back by more than `keep` is the exception.)

Tokens have up to 19 digits and Lua's numbers are doubles, exact to 15: tokens are compared as text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

from gripfast.drivers import full_name, is_a
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing.checks import checked_resource, checked_token

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

Word: TypeAlias = "str | bytes | memoryview | int | float"
Command: TypeAlias = "tuple[str | bytes | memoryview | int | float, ...] | list[Any]"

FENCE_PREFIX = b"fence:"
MAX_WORDS = 7000
"""Of one command: Lua's stack takes 8000 values, a few of which are in use."""
MAX_KEEP = 100 * 365 * 86400
OLDEST_TIME_US = 10**15
"""September 2001. A smaller token counts something else than microseconds, as those of ZooKeeper and etcd do."""

BLOCKING = ("redis.client.Redis",)
ASYNCIO = ("redis.asyncio.client.Redis",)
PIPELINES = ("redis.client.Pipeline", "redis.asyncio.client.Pipeline")

_KEY_AT = {
    "ECHO": None, "PUBLISH": None, "SCAN": None, "SPUBLISH": None, "XREAD": None, "XREADGROUP": None,
    "BITOP": 2, "LMPOP": 2, "MEMORY": 2, "OBJECT": 2, "SINTERCARD": 2, "XGROUP": 2, "XINFO": 2,
    "ZDIFF": 2, "ZINTER": 2, "ZINTERCARD": 2, "ZMPOP": 2, "ZUNION": 2,
}  # fmt: skip
"""Which word of a command is its first key, where it is not the one after the name; None: no word has that place."""

# KEYS: the fence, and the first key of each command (declared for access control and for clusters; not read here).
# ARGV: the token, `keep` in ms or 0, whether it is shared (1 or 0), then for each command the number of its words and
# the words.
_SCRIPT = b"""\
local fence, token, keep_ms, shared = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'

local function smaller(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local seen = redis.pcall('GET', fence)
local trouble = type(seen) == 'table' and seen.err
local exclusive = seen
if type(seen) == 'string' and not string.find(seen, '^%d+$') then
  seen, exclusive = string.match(seen, '^(%d+):(%d+)$')
  if not seen then trouble = 'ERR its value is not a token' end
end
if trouble then
  return redis.error_reply(trouble .. ' (fenced write, the fence ' .. fence .. ': nothing was written)')
end
local now_us
if keep_ms > 0 then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  seen = seen or string.format('%.0f', math.max(0, now_us - keep_ms * 1000))
  exclusive = exclusive or seen
end
local least = seen
if shared then least = exclusive end
if least and smaller(token, least) then return {0, least} end

local commands, at = {}, 4
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  commands[#commands + 1] = {first = at + 1, last = at + words, name = ARGV[at + 1]}
  at = at + 1 + words
end

local function refusal(message, number, told)
  return redis.error_reply(string.format('%s (fenced write, command %d of %d, %s: %s)',
    message, number, #commands, commands[number].name, told))
end

-- Asked with three words at least: some servers look for a number of keys there without counting the words.
for number, command in ipairs(commands) do
  if redis.acl_check_cmd and command.last > command.first then
    local words = {unpack(ARGV, command.first, command.last)}
    words[3] = words[3] or words[2]
    local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
    if not known then return refusal('ERR the server has no such command', number, 'nothing was written') end
    if not allowed then return refusal('NOPERM this user may not run it', number, 'nothing was written') end
  end
end

local largest, both = token, token
if shared then
  if seen and smaller(token, seen) then largest = seen end
  exclusive = exclusive or '0'
  both = largest == exclusive and largest or largest .. ':' .. exclusive
end
if now_us then
  local forget_at_ms = math.ceil(math.max(now_us, tonumber(largest)) / 1000) + keep_ms
  redis.call('SET', fence, both, 'PXAT', string.format('%.0f', forget_at_ms))
else
  redis.call('SET', fence, both)
end

local replies = {}
for number, command in ipairs(commands) do
  local reply = redis.pcall(unpack(ARGV, command.first, command.last))
  if type(reply) == 'table' and reply.err then
    return refusal(reply.err, number, number == 1 and 'only the token was remembered'
      or 'those before it were done, it and those after it were not')
  end
  replies[number] = reply
end
return {1, replies}
"""
_SHA = hashlib.sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()


class _Request(NamedTuple):
    """What is asked, in either colour."""

    resource: str
    token: int
    words: tuple[Word, ...]

    def replies(self, answer: Sequence[Any]) -> list[Any]:
        let_in, told = answer
        if not let_in:
            raise StaleToken(self.resource, self.token, int(told))
        return list(told)


@overload
def write(
    client: Redis, resource: str, token: int, *commands: Command, keep: float | None = None, shared: bool = False
) -> list[Any]: ...


@overload
def write(
    client: AsyncRedis, resource: str, token: int, *commands: Command, keep: float | None = None, shared: bool = False
) -> Awaitable[list[Any]]: ...


def write(
    client: Any, resource: str, token: int, *commands: Command, keep: float | None = None, shared: bool = False
) -> list[Any] | Awaitable[list[Any]]:
    """Run the commands on Redis, or raise StaleToken if the server has seen a larger token for the resource.

        write(client, "invoice:7", lease.token, ("SET", "invoice:7", "paid"), ("INCR", "paid"))

    The check and the commands are one atomic step of the server. `client` is a redis.Redis or a redis.asyncio.Redis;
    with the latter, await the call. Returns one reply for each command, in the form in which Lua scripts return them
    (integers above 2**53 are rounded). An equal token is the same holder writing again. Without commands the token is
    checked and stored.

    `keep`: seconds after which Redis may forget the token of an idle resource; None: never. All writers of a resource
    must use the same value, and it must be longer than anyone holds the lock. It works only with tokens that are times,
    so not with those of ZooKeeper and etcd.

    `shared`: the holder shares the resource with others, as a reader of a read/write lock does. The token is stale only
    if the server has seen a larger token that was not shared.

    An error of the server is raised as redis-py raises it (redis.ResponseError or a subclass). If one of several
    commands fails, the commands before it stay written, because Redis undoes nothing. The message names the command.
    The client may repeat a request if the reply was lost. So if a command must not run twice (INCR), use a client
    without retries.
    """
    if not is_client(client):
        raise ConfigurationError(
            f"fencing.write needs a redis.Redis or a redis.asyncio.Redis (no pipeline), not a {full_name(type(client))}"
        )
    request = _request(checked_resource(resource), checked_token(token), commands, keep, shared)
    return _awrite(client, request) if is_a(client, ASYNCIO) else _write(client, request)


def is_client(thing: object) -> bool:
    """A pipeline is a client, too, by its class, but it has no answer to give until it is executed."""
    return is_a(thing, BLOCKING + ASYNCIO) and not is_a(thing, PIPELINES)


def _write(client: Any, request: _Request) -> list[Any]:
    from redis.exceptions import NoScriptError

    try:
        answer = client.execute_command("EVALSHA", _SHA, *request.words)
    except NoScriptError:  # a server that has not seen the script, or has forgotten it
        answer = client.execute_command("EVAL", _SCRIPT, *request.words)
    return request.replies(answer)


async def _awrite(client: Any, request: _Request) -> list[Any]:
    from redis.exceptions import NoScriptError

    try:
        answer = await client.execute_command("EVALSHA", _SHA, *request.words)
    except NoScriptError:
        answer = await client.execute_command("EVAL", _SCRIPT, *request.words)
    return request.replies(answer)


def _request(resource: str, token: int, commands: Sequence[object], keep: float | None, shared: bool) -> _Request:
    keys: list[Word] = [FENCE_PREFIX + resource.encode()]  # bytes: whatever encoding the client is set to
    arguments: list[Word] = [token, 0 if keep is None else _keep_ms(keep, token), int(bool(shared))]
    for command in map(_checked_command, commands):
        name = _name(command)
        key_at = _KEY_AT.get(name, 1)
        keys += command[key_at : key_at + 1] if key_at else ()
        arguments += [len(command), name.encode(), *command[1:]]
    return _Request(resource, token, (len(keys), *keys, *arguments))


def _checked_command(command: object) -> Sequence[Word]:
    if not isinstance(command, tuple | list) or not command:
        raise ConfigurationError(
            f'a command must be a tuple of words, such as ("SET", "key", "value"), not {command!r}'
        )
    if len(command) > MAX_WORDS:
        raise ConfigurationError(f"a command must have at most {MAX_WORDS} words, not {len(command)}: split it")
    for word in command:
        if isinstance(word, bool) or not isinstance(word, str | bytes | memoryview | int | float):
            raise ConfigurationError(
                f"the words of a command must be text, bytes or numbers, not {type(word).__name__}"
            )
    return command


def _name(command: Sequence[Word]) -> str:
    name = command[0]
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text or not text:
        raise ConfigurationError(f"a command must start with its name, in one word, not with {name!r}")
    return text.upper()


def _keep_ms(keep: object, token: int) -> int:
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= MAX_KEEP:
        raise ConfigurationError(
            f"keep must be None or a number of seconds above 0 and at most {MAX_KEEP} (100 years), not {keep!r}"
        )
    if token < OLDEST_TIME_US:
        raise ConfigurationError(
            f"keep works only with tokens that are times in microseconds, and {token} is not one (those of "
            "ZooKeeper and etcd are not). Leave keep out"
        )
    return math.ceil(keep * 1000)
