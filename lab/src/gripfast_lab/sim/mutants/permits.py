"""Bugs in semaphores and read/write locks: how many have how much, and who is next."""

from __future__ import annotations

from gripfast.stores.redis.permit_store import RedisPermits
from gripfast.stores.redis.scripts import TOKEN_MOST, WINDOW_MS
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite


def _mutant(name: str, text: str, *bugs: Edit | Rewrite) -> Mutant:
    return Mutant(name, "permits", text, bugs, "permits")


PERMITS = (
    _mutant(
        "permits are not counted",
        "A claim that finds nobody waiting is granted, however many permits are in use.",
        Rewrite("if is_free and used + n <= limit and is_open then", "if is_free then"),
    ),
    _mutant(
        "small claims pass",
        "A newcomer that fits is granted its permits, although the first waiter needs more than are free.",
        Rewrite("not is_open then\n      return false, slots", "not is_open then\n      return true, slots"),
    ),
    _mutant(
        "slots stay free",
        "A slot that is granted is not taken out of the free ones.",
        Rewrite("redis.call('ZREM', free, lowest)", "redis.call('ZSCORE', free, lowest)"),
    ),
    _mutant(
        "one end for all",
        "When the first holder's time is over, all holders lose their permits.",
        Rewrite("    remove(first[1])\n  end\n  more = 1", "    reset()\n  end\n  more = 1"),
    ),
    _mutant(
        "ended permits are answered",
        "A claim of an owner whose time is over is answered with what it had.",
        Rewrite("return ending and ending >= now and ending or nil", "return ending"),
        Rewrite("elseif tonumber(first[2]) >= now then", "elseif tonumber(first[2]) >= now - 1000 then"),
    ),
    _mutant(
        "renewal brings permits back",
        "A renewal sets the end of an owner that has nothing.",
        Rewrite("if not ending or ending < now then", "if not ending then ending = 0 elseif false then"),
    ),
    _mutant(
        "permits are not handed over",
        "A release frees permits and leaves it to the waiters to find out.",
        Rewrite("settle()\nsave()\nreturn {mine,", "save()\nreturn {mine,"),
    ),
    _mutant(
        "unreachable head blocks",
        "A first waiter that a push can't reach keeps all others from what is free.",
        Rewrite("      set_aside(owner, seen)", "      return false, slots"),
    ),
    _mutant(
        "unreachable waiters lose their position",
        "A waiter that a push can't reach goes to the end of the queue.",
        Rewrite("      set_aside(owner, seen)", "      leave(owner)"),
    ),
    _mutant(
        "waiters of permits never leave",
        "Permits are handed to waiters that were not seen for longer than the window.",
        Rewrite(f"if not seen or (owner ~= asker and now - seen > {WINDOW_MS}) then", "if not seen then"),
    ),
    _mutant(
        "permits by push for the whole ttl",
        "A push says a longer time than the server keeps the permits.",
        Rewrite("owner, token, granted, slots)", "owner, token, ttl * 2, slots)"),
    ),
    _mutant(
        "tokens of permits are the clock",
        "Two grants in one request have the same token.",
        Rewrite(f"token = (token < at or token >= {TOKEN_MOST}) and at or token + 1", "token = at"),
    ),
    _mutant(
        "downgrade frees all",
        "A writer that becomes a reader has no permit any more.",
        Rewrite("used, is_changed = used - (had - n), true", "used, is_changed = used - had, true"),
    ),
    _mutant(
        "clean-up of another kind",
        "Behind a claim for permits that was not answered, the clean-up of a lock is sent.",
        Edit(
            RedisPermits._clean_up_after,
            "return self._link.clean_up(owner, script.in_full(packed))",
            "from gripfast.stores.redis import protocol as of_locks\n"
            "    return self._link.clean_up(owner, of_locks.scripts.ABANDON.in_full(of_locks.abandon(name, owner)))",
        ),
        Edit(RedisPermits.abandon, "give_back(hold.name, kind, hold.owner)", "give_back(hold.name, kind, '')"),
    ),
    _mutant(
        "resize changes nothing",
        "The limit in force stays the one of the first who came.",
        Rewrite("limit, is_changed = tonumber(ARGV[1]), true\nsave()", "is_changed = true\nsave()"),
    ),
    _mutant(
        "resize serves nobody",
        "When a limit grows, waiters are left to find out.",
        Rewrite("settle()\nsave()\nreturn {1, more}", "save()\nreturn {1, more}"),
    ),
    _mutant(
        "waiters for more than the limit stay",
        "When a limit shrinks, a waiter that will never fit stays first in the queue.",
        Rewrite("if n and tonumber(n) > limit then", "if false then"),
        Rewrite("if queued_n > limit then", "if false then"),
    ),
    _mutant(
        "force release of a slot frees all",
        "An operator names a slot, and all holders lose their permits.",
        Rewrite("if owner == '' and not slot then", "if owner == '' then"),
    ),
    _mutant(
        "force release serves nobody",
        "Permits that an operator freed are left to the waiters to find.",
        Rewrite("settle()\nsave()\nreturn {removed, more}", "save()\nreturn {removed, more}"),
    ),
    _mutant(
        "force-released slots stay taken",
        "The slots of a holder that an operator removed are given to nobody, and counted as free.",
        Rewrite(
            "    remove(owner)\n    note_broken(owner, ending)",
            "    redis.call('ZREM', ends, owner)\n    note_broken(owner, ending)",
        ),
    ),
    _mutant(
        "permits stay with a waiter that left",
        "A clean-up takes a waiter out of the queue, and leaves its permits.",
        Rewrite("mine = remove(owner) and", "mine = redis.call('HGET', holders, owner) and"),
    ),
)
