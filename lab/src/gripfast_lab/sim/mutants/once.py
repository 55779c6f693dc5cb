"""Bugs in what is done once, held for a least time, or handed over."""

from __future__ import annotations

from gripfast.core import acquire, handover, once, release, upkeep
from gripfast.stores.redis import store
from gripfast.stores.redis.store import RedisStore
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

_NOT_ITS = "if holder ~= owner then\n  if not holder then\n    hand_over()\n  end\n  return 0\nend\n"
_ADOPTED = "elseif holder ~= former then\n  return 0\nend\nreturn write(owner, ttl, keep, tail)"


def _mutant(name: str, text: str, *bugs: Edit | Rewrite) -> Mutant:
    return Mutant(name, "once", text, bugs, "once")


ONCE = (
    _mutant(
        "done by anybody",
        "It is recorded as done without a look at whose lock it is.",
        Rewrite(_NOT_ITS, ""),
    ),
    _mutant(
        "done although it is not yours",
        'A record that found another holder counts as made: "not yours" is taken for a retry.',
        Edit(
            RedisStore._keep,
            "return None if reply == 1 or was_released else (await self._why([hold]))[0]",
            "return None",
        ),
    ),
    _mutant(
        "repeated record is refused",
        "A record of what is done that is sent twice is refused the second time.",
        Rewrite("if holder == marker then\n", "if false then\n"),
    ),
    _mutant(
        "done as long as the lease",
        "What is done counts as done only until the lease would have been over.",
        Edit(once._send, "Keep(DONE + state.owner, seconds)", "Keep(DONE + state.owner, max(0.001, ends - env.now()))"),
    ),
    _mutant(
        "done by the client's clock",
        "A clean-up takes off the seconds that have passed on the client's clock since the work was done.",
        Edit(once.record_done, "Keeping(DONE, seconds)", "Keeping(DONE, seconds, env.now())"),
    ),
    _mutant(
        "clean-up after done frees",
        "A record that was interrupted is cleaned up by freeing the lock.",
        Edit(once.record_done, "env.ledger.keep(state.owner, Keeping(DONE, seconds))", "pass"),
    ),
    _mutant(
        "kept release frees",
        "A release of a lock with a min_hold, or a record of what is done, frees it.",
        Edit(RedisStore.release, "if hold.keep is not None:", "if False:"),
    ),
    _mutant(
        "clean-up forgets the min_hold",
        "What is cleaned up, dropped or closed is free at once.",
        Edit(upkeep.Reaper._try, "keep=mark.keep(now)", "keep=None"),
    ),
    _mutant(
        "release forgets the min_hold",
        "A lock that is released early is free at once.",
        Edit(release.release, "if want.min_hold is not None:", "if False:"),
    ),
    _mutant(
        "clean-up before what is kept",
        "Behind a claim that was not answered, the clean-up of a lock frees what is to be kept.",
        Edit(store.RedisStore._give_back, "if script is scripts.KEEP:", "if script is None:"),
    ),
    _mutant(
        "kept lock is handed over",
        "A waiter gets the lock that is to be kept.",
        Rewrite("redis.call('SET', lock, marker, 'PX', ARGV[3])", "redis.call('DEL', lock)\nhand_over()"),
    ),
    _mutant(
        "force release of what is done",
        "An operator who frees a lock forgets that something was done.",
        Rewrite("if holder and string.sub(holder, 1, 5) == 'done:' then", "if false then"),
    ),
    _mutant(
        "once does not wait",
        "A waiter for something to be done gets the answer at once that it is busy.",
        Edit(acquire._is_done, 'and taken.holder.kept == "done"', ""),
    ),
    _mutant(
        "adopted by the old id",
        "The adopter of a lock renews it by the owner id in the text.",
        Edit(handover.adopt, "LeaseState(want, env.new_owner())", "LeaseState(want, former)"),
    ),
    _mutant(
        "adopted from anybody",
        "A lock is adopted without a look at who has it.",
        Rewrite(_ADOPTED, "elseif not holder then\n  return 0\nend\nreturn write(owner, ttl, keep, tail)"),
    ),
    _mutant(
        "adopted when it is over",
        "A lock that nobody has any more can still be adopted.",
        Rewrite(
            _ADOPTED, "elseif holder and holder ~= former then\n  return 0\nend\nreturn write(owner, ttl, keep, tail)"
        ),
    ),
    _mutant(
        "adopted with the same token",
        "The adopter of a lock gets the token of the lease that was detached.",
        Rewrite(
            _ADOPTED,
            "elseif holder ~= former then\n  return 0\nend\nredis.call('SET', lock, owner, 'PX', ttl)\n"
            "return tonumber(string.match(redis.call('GET', fence), '^%d+'))",
        ),
    ),
    _mutant(
        "detached and released",
        "The process that has detached a lease releases the lock when the lease is dropped.",
        Edit(handover.detach, "env.ledger.confirm_gone(state.owner)", "pass"),
    ),
    _mutant(
        "detached with a claim on its way",
        "A claim that was not answered, and repeated, brings back the owner of a detached lease.",
        Edit(
            RedisStore.detach,
            "left = self._link.clean_up(hold.owner, script.in_full(packed))",
            "left = None",
        ),
    ),
    _mutant(
        "clean-up of what is detached",
        "The clean-up behind a claim that was not answered frees the lease that is detached.",
        Rewrite("if holder and string.match(redis.call('GET', fence) or '', '^%d+') == ARGV[2] then", "if false then"),
    ),
)
