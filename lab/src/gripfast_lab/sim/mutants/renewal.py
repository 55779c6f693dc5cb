"""Bugs in how leases are kept."""

from __future__ import annotations

from gripfast.core import lease, renew
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

_IS_MINE = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then\n  return 0\nend"

RENEWAL = (
    Mutant(
        "renewal sets what is absent",
        "renewal",
        "A renewal that finds the lock gone sets it again.",
        (
            Rewrite(
                _IS_MINE,
                "local holder = redis.call('GET', KEYS[1])\n"
                "if holder and holder ~= ARGV[1] then\n  return 0\nend\n"
                "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
            ),
        ),
    ),
    Mutant(
        "renewal without effect",
        "renewal",
        "A renewal says yes, but leaves the time as it is.",
        (Rewrite("math.max(left, ARGV[2])", "math.max(1, redis.call('PTTL', KEYS[1]))"),),
    ),
    Mutant(
        "renewal in seconds",
        "renewal",
        "A renewal takes milliseconds for seconds, so that the lock outlives its owner by far.",
        (Rewrite("redis.call('PEXPIRE', KEYS[1], math.max", "redis.call('EXPIRE', KEYS[1], math.max"),),
    ),
    Mutant(
        "unreachable counts as renewed",
        "renewal",
        "A renewal that could not be requested is taken for a success.",
        (Edit(renew._take_answer, "if answer is None:", "if not isinstance(answer, str):"),),
    ),
    Mutant(
        "renewal of anybody's lock",
        "renewal",
        "A renewal does not look whose lock it is.",
        (Rewrite(_IS_MINE, "if redis.call('EXISTS', KEYS[1]) == 0 then\n  return 0\nend"),),
    ),
    Mutant(
        "not yours is tried again",
        "renewal",
        "The watchdog takes it for an unreachable server when the lock is not this owner's.",
        (
            Edit(
                renew._take_answer,
                "elif isinstance(answer, Unreachable):",
                "else:\n        state.renew_later(now)\n    if isinstance(answer, Unreachable):",
            ),
        ),
    ),
    Mutant(
        "late answer revives",
        "renewal",
        "An answer that comes after the deadline, or after the release, makes the lease held again.",
        (Edit(lease.LeaseState.renewed, "if self.remaining(now) > 0.0:", "self.endings.clear()\n    if True:"),),
    ),
    Mutant(
        "renewal dated by its reply",
        "renewal",
        "A renewed lease is dated by the moment when the reply came.",
        (Edit(renew._take_answer, "state.renewed(sent,", "state.renewed(now,"),),
    ),
    Mutant(
        "first error ends renewal",
        "renewal",
        "After one renewal that did not reach the server there are no more.",
        (Edit(lease.LeaseState.renew_later, "now + rules.renew_retry(self.ttl)", "1e18"),),
    ),
    Mutant(
        "renewal comes too late",
        "renewal",
        "A lease is renewed only when it has run out.",
        (Edit(lease.LeaseState.grant, "self.renew_at = renew_at", "self.renew_at = deadline"),),
    ),
    Mutant(
        "failed extend is tried for ever",
        "renewal",
        "A lease that is not to be renewed is, once an extension has failed.",
        (Edit(lease.LeaseState.renew_later, "if self.renews:", "if True:"),),
    ),
    Mutant(
        "extend without effect",
        "renewal",
        "An extension reports success without a request.",
        (Edit(renew.extend, "answer = await renew(env, [state], shortens)", "answer = None"),),
    ),
)
