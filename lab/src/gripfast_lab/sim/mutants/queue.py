"""Bugs in who is next, and in how it hears of it."""

from __future__ import annotations

from gripfast.core import acquire, rules
from gripfast.stores.redis import scripts
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

QUEUE = (
    Mutant(
        "barging claim",
        "queue",
        "A claim that finds the lock free takes it, whoever waits.",
        (Rewrite("if redis.call('EXISTS', lock, line) == 0 then", "if redis.call('EXISTS', lock) == 0 then"),),
    ),
    Mutant(
        "last come, first served",
        "queue",
        "A new waiter goes to the front of the queue.",
        (
            Rewrite("'ZRANGE', line, -1, -1, 'WITHSCORES'", "'ZRANGE', line, 0, 0, 'WITHSCORES'"),
            Rewrite("'NX', last + 1, owner", "'NX', last - 1, owner"),
        ),
    ),
    Mutant(
        "handed to an unreachable waiter",
        "queue",
        "The lock is handed to a waiter although nobody received the push.",
        (Rewrite("  if not is_heard(channel) then\n    return false\n  end\n", ""),),
    ),
    Mutant(
        "waiters never leave",
        "queue",
        "The lock is handed to waiters that were not seen for longer than the window.",
        (Rewrite(f"if not seen or now_ms() - seen > {scripts.WINDOW_MS} then", "if not seen then"),),
    ),
    Mutant(
        "unreachable waiter loses its position",
        "queue",
        "A waiter that a push could not reach is taken out of the queue, and comes back at its end.",
        (
            Rewrite(
                "  if not is_heard(channel) then\n    return false\n  end\n",
                "  if not is_heard(channel) then\n    leave(owner)\n    return false\n  end\n",
            ),
        ),
    ),
    Mutant(
        "position lost by a retry",
        "queue",
        "A waiter that retries goes to the end of the queue.",
        (
            Rewrite("if is_new or not redis.call('ZSCORE', line, owner) then", "do"),
            Rewrite("'NX', last + 1", "last + 1"),
        ),
    ),
    Mutant(
        "old push counts",
        "queue",
        "A push of an earlier grant is taken for a new one.",
        (Edit(acquire._is_good, "pushed.token > taken.token and ", ""),),
    ),
    Mutant(
        "new owner id for each try",
        "queue",
        "Every retry has a new owner id, so that it is not recognised and the queue fills with entries of nobody.",
        (
            Edit(
                acquire._persist,
                "new_answer, sent = await _ask(env, claim, mark)",
                "claim = claim._replace(owner=env.new_owner()); new_answer, sent = await _ask(env, claim, mark)",
            ),
        ),
    ),
    Mutant(
        "waits for the push alone",
        "queue",
        "A waiter relies on its notification, and does not retry.",
        (Edit(rules.ask_again_at, "pace = refresh_pace(ttl)", "return now + 1e6"),),
    ),
    Mutant(
        "own lock counts as another's",
        "queue",
        "A claim that finds its own lock, after a lost reply, is refused.",
        (Rewrite("if seen[1] == owner then\n", "if false then\n"),),
    ),
    Mutant(
        "stays queued with the lock",
        "queue",
        "A waiter that gets the lock by a retry keeps its position in the queue.",
        (
            Rewrite("if next == owner then\n    leave(owner)\n  end", ""),
            Rewrite("  leave(owner)\n  redis.call('PEXPIRE', lock", "  redis.call('PEXPIRE', lock"),
        ),
    ),
    Mutant(
        "release hands nothing over",
        "queue",
        "A release frees the lock and leaves it to the waiters to find out.",
        (Rewrite("if hand_over(nil, first) then\n    return mine", "if false then\n    return mine"),),
    ),
)
