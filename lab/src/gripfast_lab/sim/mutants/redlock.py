"""Bugs in Redlock: in the fencing rule, in counting votes, in keeping and in giving back what several nodes have."""

from __future__ import annotations

from gripfast.core import acquire
from gripfast.core.redlock import ballot, store
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

_FREE_FOR_ALL = "token < before or token == before and string.match(last or '', '\\n(.*)$') ~= value then"


def _mutant(name: str, text: str, *bugs: Edit | Rewrite, scenario: str = "redlock3") -> Mutant:
    return Mutant(name, "redlock", text, bugs, scenario)


REDLOCK = (
    # The fencing rule.
    _mutant(
        "equal token accepted",
        "A node accepts a token that somebody else has written there.",
        Rewrite(_FREE_FOR_ALL, "token < before then"),
    ),
    _mutant(
        "any token accepted",
        "A node accepts a token below the one that it has accepted.",
        Rewrite(_FREE_FOR_ALL, "false then"),
    ),
    _mutant(
        "accepted for one who has lost the node",
        "The second round does not look whether the lock is still the attempt's.",
        Rewrite("if redis.call('GET', lock) ~= value then\n  return 0\nend", ""),
    ),
    _mutant(
        "maximum of counters",
        "The token is the largest that was received plus one; no node has to accept it.",
        Edit(
            store.RedlockStore._settle,
            "second = await self._second_round(vote, token, ballot)",
            "return self._granted(record, token, claim.ttl)",
        ),
    ),
    _mutant(
        "taken back without a look at the token",
        "A node is taken back although it has accepted a larger token since.",
        Rewrite("if before > token then\n  return 0\nend", ""),
    ),
    _mutant(
        "taken back although taken",
        "A node is taken back from whoever has the lock there now.",
        Rewrite("if redis.call('EXISTS', lock) == 1 then\n  return 0\nend", ""),
    ),
    # Forgetful nodes.
    _mutant(
        "no birth marker",
        "A node that came back empty votes at once.",
        Rewrite("if not born then\n    return {ms}\n  end", "if not born then\n    born = 0\n  end"),
    ),
    _mutant(
        "no grace",
        "A node that came back empty votes as soon as it is marked.",
        Rewrite("if born + grace > ms then", "if false then"),
    ),
    _mutant(
        "new by majority",
        "The cluster counts as new if a majority of nodes has no birth marker.",
        Edit(store.RedlockStore._attempt, "ballot.unmarked == self._count", "ballot.unmarked >= majority(self._count)"),
        Edit(
            store.RedlockStore._establish,
            "Roll(self._count, self._count)",
            "Roll(self._count, self._count - requests.count(None))",
        ),
    ),
    # Counting.
    _mutant(
        "majority of those that answered",
        "A node that failed does not count, neither for nor against.",
        Edit(
            ballot.VoteBallot.add,
            "self.missing += not isinstance(answer, Busy)",
            "self.missing += not isinstance(answer, Busy); self._majority = majority(len(self.answers) - self.missing)",
        ),
    ),
    _mutant(
        "one vote too few",
        "A vote is won with one node less than a majority.",
        Edit(ballot.VoteBallot.__init__, "majority(nodes)", "majority(nodes) - 1"),
    ),
    _mutant(
        "taken reported as unreachable",
        "Nodes that are somebody else's count as nodes that could not be reached.",
        Edit(store.RedlockStore._lost, "Failed, Unmarked, Newborn", "Failed, Unmarked, Newborn, Busy"),
    ),
    _mutant(
        "renewed by a minority",
        "A renewal counts if one node has renewed.",
        Edit(store.RedlockStore._kept, "answers.count(True) >= majority(self._count)", "answers.count(True) >= 1"),
    ),
    _mutant(
        "lost where one node has lost it",
        "A lease is lost as soon as one node does not have it any more.",
        Edit(store.RedlockStore._kept, "answers.count(True) >= majority(self._count)", "all(answers)"),
        Edit(store.RedlockStore._kept, "self._is_short(answers.count(False))", "answers.count(False)"),
    ),
    _mutant(
        "votes dated after they came",
        "The deadline counts from the moment at which the vote was won.",
        Edit(
            acquire._ask,
            "answer = await env.store.claim(claim)\n",
            "answer = await env.store.claim(claim); sent = env.now()\n",
        ),
    ),
    # Giving back.
    _mutant(
        "failed attempt left",
        "An attempt that failed leaves what it got.",
        Edit(
            store.RedlockStore._lost,
            "self._nodes.send(Unlock(claim.name, claim.owner, record.attempt), elsewhere)",
            "pass",
        ),
    ),
    _mutant(
        "released where granted",
        "A release goes only to those nodes whose vote was received.",
        Edit(
            store.RedlockStore._attempt,
            "if ballot.is_plain:\n",
            "if ballot.is_plain:\n        record.asked = frozenset(_those(ballot.answers, Locked))\n",
        ),
    ),
    _mutant(
        "earlier attempt takes the node back",
        "A vote of an earlier attempt that comes late replaces the value of the later one.",
        Rewrite(
            "if not is_mine or tonumber(string.sub(holder, #mine + 1)) > tonumber(string.sub(value, #mine + 1)) then",
            "if not is_mine then",
        ),
    ),
    _mutant(
        "unlocked whatever is there",
        "The clean-up of an attempt does not look whose lock it is.",
        Rewrite("if redis.call('GET', KEYS[1]) ~= ARGV[1] then\n  return 0\nend\nredis.call('DEL'", "redis.call('DEL'"),
    ),
    _mutant(
        "clean-up of an attempt by owner",
        "The clean-up of a failed attempt takes away what a later one of the same owner has got.",
        Edit(
            store.RedlockStore._lost,
            "Unlock(claim.name, claim.owner, record.attempt)",
            "Free(claim.name, claim.owner)",
        ),
    ),
    # Waiting.
    _mutant(
        "nobody woken",
        "A release wakes nobody.",
        Edit(store.RedlockStore._wake, "self._nodes.send(Wake(name), told[:WOKEN_AT])", "pass"),
    ),
)
