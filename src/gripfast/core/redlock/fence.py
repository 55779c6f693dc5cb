"""The fencing rule of Redlock, and why its tokens grow.

Each node keeps, for each name, F: the largest token that it has accepted, and who wrote it.

    Round 1   to every node: "if the lock is free, or mine already, take it; accept p if p > F, or if p = F and I wrote
              it: F := p". p is only a proposal: the client's wall clock, or one more than the largest F it has seen.
              If a majority has both locked and accepted, p is the token.
    Round 2   if a majority has locked, but fewer accepted: t is one more than the largest F that they told. To those
              who locked, and behind the first request to those who have not answered yet: "if the lock is still
              mine, accept t if t > F, or if t = F and I wrote it: F := t". If a majority has accepted, t is the token.
              Anything less is a failed attempt.

Why it holds. Take two grants, and a node that is in both of their majorities: there is one. That node has accepted
both tokens, one after the other, each strictly above everything that it had accepted before, because F never shrinks.
So the tokens differ, and the one that was accepted later is larger. If the first grant was returned before the second
attempt began, the node accepted them in that order: the later grant has the larger token. No clock occurs in this, nor
that a lock is held by one owner at a time: it holds although leases expire early, although clients are paused past
their ttl, and although the exclusion of Redlock is broken by a clock that jumps.

It does need what a majority remembers. F of a name that nobody uses is kept for a day by the node's clock, so a clock
that goes more than a day ahead loses it. So does a node that came back empty. An absent F reads as "a day before the
node's time": whatever was kept no longer was smaller. After a loss of memory tokens grow as far as the clients' clocks
do, and a lease that is renewed takes the node back, which writes its token there.

The owner check of round 2 ("if the lock is still mine") is not needed for tokens to differ, nor is F in the taking back
of a node. They keep tokens in the order of the ownership of the shared node: an attempt that has lost the node must not
raise F under the next one, and a node that is taken back must refuse what is older than the lease.

One plausible shortcut is wrong: to let every node count, and take the maximum of a majority's counters. If A asks n1
and then n2 while B asks both in between, n1 has counted 1 for A and 2 for B, n2 1 for B and 2 for A: both have 2.
The simulation goes through all of this: `docs/redlock.md` tells how to see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gripfast.core.redlock.nodes import Answer, Locked

SEEN_MOST = 4096
"""Names of which a client remembers what it has seen; one more forgets the oldest, which costs a second round."""


class Proposals:
    """What a client proposes, from its clock and from what it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        """Only where the clock was behind: elsewhere it is enough."""

    def next(self, name: str, wall_us: int) -> int:
        if not self._seen:
            return wall_us
        seen = self._seen.get(name, 0)
        return wall_us if wall_us > seen else seen + 1

    def saw(self, name: str, fence: int) -> None:
        """That a node has accepted this one."""
        if fence > self._seen.get(name, 0):
            self._seen.pop(name, None)
            self._seen[name] = fence
            if len(self._seen) > SEEN_MOST:
                self._seen.pop(next(iter(self._seen)), None)


def second_token(proposal: int, answers: Sequence[Answer]) -> int:
    """For round 2, above everything that those who locked have accepted."""
    locked = [answer for answer in answers if isinstance(answer, Locked)]
    return max(proposal if answer.has_accepted else answer.fence for answer in locked) + 1
