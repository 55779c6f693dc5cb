"""Bugs in how things are given back."""

from __future__ import annotations

from gripfast.core import acquire, ledger, release, rules, upkeep
from gripfast.stores.redis.conversation import Server
from gripfast.stores.redis.store import RedisStore
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

CLEAN_UP = (
    Mutant(
        "release of anybody's lock",
        "clean-up",
        "A release does not look whose lock it is.",
        (Rewrite("local mine = holder == ARGV[1] and 1 or 0", "local mine = holder and 1 or 0"),),
    ),
    Mutant(
        "clean-up of anybody's lock",
        "clean-up",
        "A clean-up frees the lock whoever has it.",
        (
            Rewrite(
                "leave(ARGV[1])\nlocal holder = redis.call('GET', lock)\nif holder and holder ~= ARGV[1] then",
                "leave(ARGV[1])\nlocal holder = redis.call('GET', lock)\nif false then",
            ),
        ),
    ),
    Mutant(
        "clean-up leaves the queue position",
        "clean-up",
        "A clean-up frees the lock, but leaves the owner in the queue.",
        (Rewrite("leave(ARGV[1])\n", ""),),
    ),
    Mutant(
        "refused waiter stays queued",
        "clean-up",
        "An attempt whose wait is over stays in the queue.",
        (Edit(acquire._leave, "if may_have_left and any(", "if False and any("),),
    ),
    Mutant(
        "clean-up overtakes a late claim",
        "clean-up",
        "A clean-up takes another connection than the claim that it cleans up, and may overtake it.",
        (
            Edit(
                RedisStore._clean_up_after,
                "return self._link.clean_up(owner, script.in_full(packed))",
                "return None",
            ),
        ),
    ),
    Mutant(
        "only the last claim cleaned up",
        "clean-up",
        "If a claim was repeated, only the last one is cleaned up.",
        (Edit(Server.sends, "self.late.setdefault(owner, []).append(before)", "pass"),),
    ),
    Mutant(
        "release ignores late claims",
        "clean-up",
        "A release does not clean up a claim of its owner that may still take effect.",
        (Edit(RedisStore.release, "if hold.owner in link.server.late:", "if False:"),),
    ),
    Mutant(
        "reaper gives up too early",
        "clean-up",
        "What could not be released is forgotten when its ttl is over, although a queue position is kept longer.",
        (Edit(rules.forgotten_at, "max(ttl, WAITER_WINDOW)", "ttl"),),
    ),
    Mutant(
        "cancelled claim forgotten",
        "clean-up",
        "An acquire that is cancelled forgets its owner id.",
        (Edit(acquire.acquire, "if isinstance(error, ConfigurationError) and patience is None:", "if True:"),),
    ),
    Mutant(
        "dropped lease stays",
        "clean-up",
        "A lease that nobody can use any more is not released.",
        (Edit(ledger.Ledger.enter, "Mark(state, self._drop)", "Mark(state)"),),
    ),
    Mutant(
        "reaper forgets",
        "clean-up",
        "What could not be released is forgotten.",
        (Edit(upkeep.Reaper._try, "if trouble is None:", "if True:"),),
    ),
    Mutant(
        "failed release forgotten",
        "clean-up",
        "A release that did not reach the server is not tried again.",
        (
            Edit(
                release.release,
                "answer.error, extra=state.about())\n        env.ledger.abandon(state)",
                "answer.error, extra=state.about())\n        env.ledger.confirm_gone(state.owner)",
            ),
        ),
    ),
    Mutant(
        "closing releases nothing",
        "clean-up",
        "A client that is closed leaves its locks and queue positions to their ttl.",
        (Edit(upkeep.Reaper.reap_all, "for mark in ledger.marks():", "for mark in list[Mark]():"),),
    ),
)
