"""One step about a name: what is decided between the two requests of its transaction. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gripfast.core import rules
from gripfast.core.ports import Claim, LockInfo, Share
from gripfast.stores import permits
from gripfast.stores.permits import Settlement, Waiter
from gripfast.stores.sql.permit_ports import PermitScripts
from gripfast.stores.sql.permit_rows import Key, State, changes, holder_info, read_state
from gripfast.stores.sql.ports import Rows
from gripfast.stores.sql.protocol import microseconds, number, text
from gripfast.stores.sql.statement import Query

SEEN_ENOUGH = rules.WAITER_WINDOW / 4
"""Seconds for which a waiter need not be seen again."""


class Step:
    is_new = False
    """The name is made if there is none."""
    state: State
    """What was found."""
    settlement: Settlement
    """What was decided."""

    def __init__(self, scripts: PermitScripts, key: Key) -> None:
        self.key = key
        self.is_known = False
        """Somebody knows the name. Otherwise nothing was found, and nothing done."""
        self.times = 0
        """More than one: it was repeated, and an earlier one may have been committed."""
        self._scripts = scripts

    def decide(self, answer: list[Rows]) -> Sequence[Query]:
        """If nothing changes, nothing is committed: that would wait for the disk."""
        self.times += 1
        state = read_state(answer)
        self.is_known = state is not None
        if state is None:
            return self._scripts.rollback()
        self.state, self.settlement = state, self._settled(state)
        queries = self._changes()
        return [*queries, *self._scripts.commit()] if queries else self._scripts.rollback()

    def _settled(self, state: State) -> Settlement:
        raise NotImplementedError

    def _changes(self) -> list[Query]:
        return changes(self._scripts, self.key, self.state, self.settlement)

    def next_to_ask(self) -> str | None:
        """The first waiter, if it could have its permits now and has to claim them."""
        queue = self.settlement.queue
        return queue[0].owner if queue and queue[0].asks and self.settlement.fits(queue[0].n) else None


class PlainStep(Step):
    def __init__(
        self,
        scripts: PermitScripts,
        key: Key,
        decide: Callable[..., Settlement],
        *args: object,
        is_new: bool = False,
        note: str | None = None,
    ) -> None:
        """`decide`: of `stores/permits.py`. `note`: in JSON, for those who are removed."""
        super().__init__(scripts, key)
        self.is_new = is_new
        self._decide = decide
        self._args = args
        self._note = note

    def _settled(self, state: State) -> Settlement:
        return self._decide(state.pool, state.holders, state.queue, *self._args, state.now)

    def _changes(self) -> list[Query]:
        return changes(self._scripts, self.key, self.state, self.settlement, self._note)


class ClaimStep(Step):
    is_new = True

    def __init__(
        self, scripts: PermitScripts, claim: Claim, share: Share, details: str, channel: str, session: int
    ) -> None:
        """`channel`: where the waiter is notified, in that session; empty if it claims again by itself."""
        super().__init__(scripts, Key(share.kind, claim.name))
        self._claim = claim
        self._share = share
        self._details = details
        self._channel = channel
        self._session = session
        self._before: Waiter | None = None
        """As it was found in the queue."""

    @property
    def waits(self) -> bool:
        """It is queued now."""
        decided = self.settlement
        return self._claim.inbox is not None and decided.granted is None and decided.limit_in_force is None

    def is_idle(self, answer: list[Rows]) -> bool:
        """By a look: this step would change nothing."""
        self.decide(answer)
        before = self._before
        if not self.is_known or not self.waits or before is None or before.address != self._channel:
            return False
        is_seen = not before.muted and self.state.now.clock - before.seen < SEEN_ENOUGH
        return is_seen and not changes(self._scripts, self.key, self.state, self.settlement)

    def position(self) -> int:
        """How many are served before."""
        owners = [waiter.owner for waiter in self.settlement.queue if not waiter.muted]
        return owners.index(self._claim.owner) if self._claim.owner in owners else len(owners)

    def holder(self) -> LockInfo | None:
        first = self.settlement.first_to_expire()
        return None if first is None else holder_info(self.key.name, first, self.state.now)

    def _settled(self, state: State) -> Settlement:
        claim, now = self._claim, state.now
        self._before = next((waiter for waiter in state.queue if waiter.owner == claim.owner), None)
        ticket = max((waiter.ticket for waiter in state.queue), default=0) + 1
        mine = self._before or Waiter(ticket, claim.owner, self._share.n, claim.ttl, now.clock, self._details, "")
        is_asking = not self._channel
        mine = mine._replace(ttl=claim.ttl, seen=now.clock, address=self._channel, muted=False, asks=is_asking)
        self._mine = mine
        queue = [mine if waiter.owner == claim.owner else waiter for waiter in state.queue]
        return permits.claim(state.pool, state.holders, queue, mine, self._share.limit, now)

    def _changes(self) -> list[Query]:
        queries, mine = super()._changes(), self._mine
        if not self.waits:
            return queries
        if self._before is None:
            self.settlement.queue.append(mine)
        queued = self._scripts.write_waiter(
            *self.key, mine.owner, mine.ticket, mine.n, microseconds(mine.ttl), microseconds(mine.seen), mine.details,
            self._channel, self._session,
        )  # fmt: skip
        return [*queries, *queued]


class SweepStep:
    """Forgets names that nobody has used for long, whose next token the clock alone makes larger."""

    def __init__(self, scripts: PermitScripts) -> None:
        self.looked_at = 0
        self._scripts = scripts

    def decide(self, answer: list[Rows]) -> Sequence[Query]:
        rows = answer[-1].rows
        self.looked_at = len(rows)
        queries: list[Query] = []
        for kind, name, *numbers in rows:
            token, since_us, is_held, now_us = map(number, numbers)
            last_use = max(token, since_us)
            if not is_held and last_use + rules.TOKEN_MEMORY_US < now_us:
                queries += self._scripts.forget(text(kind), text(name))
            else:  # held for long: looked at again a day later
                checked_us = now_us if is_held else last_use
                queries += self._scripts.write_checked(text(kind), text(name), checked_us)
        return [*queries, *self._scripts.commit()] if queries else self._scripts.rollback()
