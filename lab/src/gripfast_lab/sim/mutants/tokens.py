"""Bugs in fencing tokens."""

from __future__ import annotations

from gripfast.core import lease
from gripfast.stores.redis import scripts
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

_HANDS_ON = f"local token = write(owner, granted, granted + {scripts.MEMORY_MS}, tail)"

TOKENS = (
    Mutant(
        "token from the clock alone",
        "tokens",
        "A token is the server's time, even if the clock has gone back.",
        (Rewrite("if not before or before < at then", "do"),),
    ),
    Mutant(
        "token counted",
        "tokens",
        "Tokens are counted up from one, so that they begin again after a loss of memory.",
        (Rewrite("local text = string.format('%.0f', at)", "at = 1\n  local text = string.format('%.0f', at)"),),
    ),
    Mutant(
        "token rounded",
        "tokens",
        "A token is remembered as Lua shows a number, with 14 digits.",
        (Rewrite("string.format('%.0f', at)", "string.format('%.0f', tonumber(tostring(at)))"),),
    ),
    Mutant(
        "same token after a hand-off",
        "tokens",
        "A hand-off has the token of the grant before it.",
        (
            Rewrite(
                _HANDS_ON,
                "local last = redis.call('GET', fence)\n"
                f"  {_HANDS_ON}\n"
                "  token = last and tonumber(string.match(last, '^%d+')) or token",
            ),
        ),
    ),
    Mutant(
        "hand-off keeps no token",
        "tokens",
        "A hand-off sets the lock without writing down its token.",
        (
            Rewrite(
                _HANDS_ON,
                "redis.call('SET', lock, owner, 'PX', granted)\n"
                "  local token = tonumber(string.match(redis.call('GET', fence) or '0', '^%d+')) + 1",
            ),
        ),
    ),
    Mutant(
        "token forgotten with the lock",
        "tokens",
        "The token is kept no longer than the lock.",
        (
            Rewrite("'PX', keep, 'GET')", "'PX', ttl, 'GET')"),
            Rewrite("'PX', keep + math.ceil((before + 1 - at) / 1000))", "'PX', ttl)"),
            Rewrite("redis.call('PEXPIRE', KEYS[2], ARGV[3])", "redis.call('PEXPIRE', KEYS[2], ARGV[2])"),
            Rewrite("redis.call('PEXPIRE', fence, keep)", "redis.call('PEXPIRE', fence, ttl)"),
        ),
    ),
    Mutant(
        "release forgets the token",
        "tokens",
        "A release removes the token with the lock.",
        (Rewrite("redis.call('DEL', lock)\nend\nreturn mine", "redis.call('DEL', lock, fence)\nend\nreturn mine"),),
    ),
    Mutant(
        "token grows by renewal",
        "tokens",
        "A renewed lease has another token.",
        (Edit(lease.LeaseState.renewed, "self.ttl = ttl", "self.ttl = ttl; self.token += 1"),),
    ),
    Mutant(
        "another token for a retry",
        "tokens",
        "A claim that is repeated by the holder gets a new token.",
        (Rewrite("return tonumber(token)\nend", "return write(owner, ttl, keep, tail)\nend"),),
    ),
    Mutant(
        "tokens kept for ever",
        "tokens",
        "The token of a name that nobody uses any more is never forgotten.",
        (
            Rewrite(
                "redis.call('SET', fence, text .. tail, 'PX', keep, 'GET')",
                "redis.call('SET', fence, text .. tail, 'GET')",
            ),
        ),
    ),
)
