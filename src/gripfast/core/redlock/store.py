"""The store of Redlock: votes, renewals and releases on N independent nodes.

A claim is one attempt: a vote, at most one second round, and, if it failed, clean-ups that follow on the same
connections. Each attempt has a number of its own, so whatever arrives late of an earlier one does no harm. The lease is
dated by the moment before the vote left (the recipes do that), which is `ttl − elapsed − drift` of validity at the
moment of the decision.

A renewal needs a majority, and never sets what is absent. A node that has lost the lock is taken back by a request of
its own, after a majority was renewed; it counts from the next renewal on. One that came back empty must be old enough
to vote before it is taken back, too: somebody may count on a vote that it has forgotten.

A node without its memory is known by its missing birth marker. A vote changes nothing there. A client that saw all
nodes without a marker may tell them, for one second, that the cluster is new (`_establish`). A client that saw a marker
on others has the nodes without one marked as born now (`_mark`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType

from gripfast.core.ports import (
    Broken,
    Capabilities,
    Claim,
    Granted,
    Hold,
    Inbox,
    LockInfo,
    Loss,
    Page,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.core.redlock import pauses, summary
from gripfast.core.redlock.ballot import FreeBallot, Roll, VoteBallot, failures, majority
from gripfast.core.redlock.fence import Proposals, second_token
from gripfast.core.redlock.nodes import (
    Accept,
    Answer,
    Busy,
    Each,
    Establish,
    Failed,
    ForceRelease,
    Free,
    Freed,
    Inspect,
    Locked,
    Mark,
    Newborn,
    Nodes,
    Renew,
    Request,
    TakeBack,
    Unlock,
    Unmarked,
    Vote,
    Wake,
    Why,
)
from gripfast.core.redlock.records import Record, Records
from gripfast.errors import Reason

CAPABILITIES = Capabilities(
    fair=False,
    push=True,
    session=False,
    durable_fence=False,
    lists=True,
    waiters_seen=True,
    processes=True,
    sees_death=False,
    tells_reason=True,
    lazy_release=True,
)

CHUNK = 500
"""Leases that are renewed, or released, together."""
WOKEN_AT = 2
"""Nodes that wake the first in their line: it may have left the one of them that it has just got in vain."""
UNMARKED_MOST = 10_000
"""Milliseconds in which all nodes that answer are without a marker, before it counts that the others do not answer."""


class RedlockStore(Store):
    capabilities = CAPABILITIES

    def __init__(self, nodes: Nodes, records: Records) -> None:
        self._nodes = nodes
        self._records = records
        self._proposals = Proposals()
        self._attempts = itertools.count(1)
        self._unmarked: dict[int, int] = {}
        """When a node was first seen without a marker, by its own clock, while none was seen with one."""
        self._count = len(nodes.names)
        self._everyone = frozenset(range(self._count))

    def inbox(self) -> Inbox:
        return self._nodes.inbox()

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        record = self._records.of(claim)
        inbox = claim.inbox
        hears = inbox is not None and self._nodes.hears(claim.owner, inbox)
        answer = await self._attempt(claim, record, hears)
        if inbox is not None and not hears and isinstance(answer, Taken):
            answer = await self._listen(claim.owner, inbox, record, answer)
        if inbox is None and isinstance(answer, Taken) and not answer.is_split:
            self._records.end(claim.owner)  # nobody asks for it any more
        return answer

    async def _listen(self, owner: str, inbox: Inbox, record: Record, taken: Taken) -> Taken:
        """The first time, ask again at once: to be known where to be woken. Dated anew, this may have taken a while."""
        await self._nodes.listen()
        is_first = record.tries + record.splits == 1
        return taken._replace(again_in=0.0) if is_first and self._nodes.hears(owner, inbox) else taken

    async def _attempt(
        self, claim: Claim, record: Record, waits: bool, is_established: bool = False
    ) -> Granted | Taken | Unreachable:
        asked_before, record.asked = record.asked, self._everyone
        record.attempt = next(self._attempts)
        proposal = self._proposals.next(claim.name, self._nodes.wall_us())
        vote = Vote(claim.name, claim.owner, record.attempt, claim.ttl, claim.told, proposal, waits)
        ballot = VoteBallot(self._count, self._count)
        await self._nodes.poll([vote] * self._count, ballot)
        if ballot.is_plain:
            return self._granted(record, proposal, claim.ttl)
        record.asked = asked_before | _reached(ballot.answers)
        if ballot.unmarked == self._count and not is_established:
            await self._establish(ballot.answers)
            return await self._attempt(claim, record, waits, is_established=True)
        return await self._settle(claim, record, vote, ballot)

    def _granted(self, record: Record, token: int, ttl: float) -> Granted:
        record.token = token
        return Granted(token, ttl)

    async def _settle(
        self, claim: Claim, record: Record, vote: Vote, ballot: VoteBallot
    ) -> Granted | Taken | Unreachable:
        """The vote was lost, or not plain: a node has failed, or has accepted other tokens, or forgotten everything."""
        self._learn(claim.name, vote.proposal, ballot.answers)
        if 0 < ballot.unmarked < self._count:
            self._mark(ballot.answers)
        if ballot.is_won:
            return self._granted(record, vote.proposal, claim.ttl)
        if ballot.is_locked:
            token = second_token(vote.proposal, ballot.answers)
            second = await self._second_round(vote, token, ballot)
            self._learn(claim.name, vote.proposal, second.answers)
            if second.is_won:
                self._proposals.saw(claim.name, token)
                return self._granted(record, token, claim.ttl)
        return self._lost(claim, record, ballot.answers)

    def _learn(self, name: str, proposal: int, answers: Sequence[Answer]) -> None:
        """Tokens that were accepted elsewhere, where the clock is behind them."""
        for answer in answers:
            if isinstance(answer, Busy | Locked) and answer.fence >= proposal:
                self._proposals.saw(name, answer.fence)

    async def _second_round(self, vote: Vote, token: int, first: VoteBallot) -> VoteBallot:
        """Those whose vote is still to come are asked, too: behind it. With a bare majority of those who were first, a
        node that falls silent between the rounds would cost the attempt, although a majority is well."""
        asked = _those(first.answers, Locked, NoneType)
        accept = Accept(vote.name, vote.owner, vote.attempt, vote.ttl, vote.label, token)
        ballot = VoteBallot(self._count, len(asked), is_first=False)
        await self._nodes.poll([accept if node in asked else None for node in range(self._count)], ballot)
        return ballot

    def _lost(self, claim: Claim, record: Record, answers: Sequence[Answer]) -> Taken | Unreachable:
        """Nothing of a failed attempt is left, as far as its requests arrive; its owner stays queued."""
        elsewhere = [node for node in record.asked if not isinstance(answers[node], Busy)]
        self._nodes.send(Unlock(claim.name, claim.owner, record.attempt), elsewhere)
        if self._is_short(len(_those(answers, Failed, Unmarked, Newborn))):
            failed = failures(answers)
            error = summary.no_majority(self._nodes.names, answers)
            if not record.asked:
                self._records.end(claim.owner)  # no node knows of it, so nobody has to clean up
            was_refused = self._is_short(sum(each.was_refused for each in failed))
            is_permanent = self._is_short(sum(each.is_permanent for each in failed))
            return unreachable(error, bool(record.asked), was_refused, is_permanent)
        holder = summary.holder(answers, self._count)
        fence = max((each.fence for each in answers if isinstance(each, Busy)), default=0)
        chance = self._nodes.chance()
        if holder is None:
            record.splits += 1
            return Taken(summary.likely(answers), fence, pauses.after_split(record.splits, chance), is_split=True)
        record.tries, record.splits = record.tries + 1, 0
        return Taken(holder, fence, pauses.while_held(record.tries, chance, holder.expires_in))

    async def _establish(self, answers: Sequence[Answer]) -> None:
        """No node has a birth marker: the cluster is new."""
        requests = [Establish(answer.moment) if isinstance(answer, Unmarked) else None for answer in answers]
        await self._nodes.poll(requests, Roll(self._count, self._count))

    def _mark(self, answers: Sequence[Answer]) -> None:
        """Nodes without a marker are born now, if others have one. If those who may have one do not answer, they get
        the time to do so: the cluster may be new."""
        unmarked = {node: answer.moment for node, answer in enumerate(answers) if isinstance(answer, Unmarked)}
        waited = max(moment - self._unmarked.setdefault(node, moment) for node, moment in unmarked.items())
        if waited > UNMARKED_MOST or _those(answers, Locked, Busy, Newborn):
            self._unmarked.clear()
            self._nodes.send(Mark(), unmarked)

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        results: list[Loss | Unreachable | None] = []
        for start in range(0, len(holds), CHUNK):
            results += await self._renew(holds[start : start + CHUNK], within)
        return results

    async def _renew(self, holds: Sequence[Hold], within: float) -> list[Loss | Unreachable | None]:
        records = [self._records.find(hold.owner) or Record(None) for hold in holds]
        renewals: list[Request] = [
            Renew(hold.name, hold.owner, record.attempt, hold.ttl, hold.shortens)
            for hold, record in zip(holds, records, strict=True)
        ]
        answers = await self._ask_all(Each(renewals), within)
        results: list[Loss | Unreachable | None] = [
            self._kept(hold, summary.at(answers, place)) for place, hold in enumerate(holds)
        ]
        gone = [place for place, result in enumerate(results) if result == "expired"]
        if gone:
            reasons = await self._why([holds[place] for place in gone], [records[place] for place in gone])
            for place, reason in zip(gone, reasons, strict=True):
                results[place] = reason
        kept = [place for place, result in enumerate(results) if result is None]
        await self._take_back(holds, records, {place: summary.at(answers, place) for place in kept})
        return results

    def _kept(self, hold: Hold, answers: Sequence[Answer]) -> Reason | Unreachable | None:
        """By a majority; or surely not, because a majority has lost it; or nobody knows. Nor does anybody where a node
        may still hear that it is to be shortened, after it was lengthened again."""
        may_be_late = hold.shortens and any(failed.was_asked for failed in failures(answers))
        if answers.count(True) >= majority(self._count) and not may_be_late:
            return None
        return "expired" if self._is_short(answers.count(False)) else self._no_majority(answers)

    async def _why(self, holds: Sequence[Hold], records: Sequence[Record]) -> list[Loss]:
        """That they are gone is known already."""
        asked = [Why(hold.name, hold.owner, record.attempt) for hold, record in zip(holds, records, strict=True)]
        answers = await self._ask_all(Each(asked))
        return [_worst(summary.at(answers, place)) for place in range(len(holds))]

    async def _take_back(
        self, holds: Sequence[Hold], records: Sequence[Record], kept: Mapping[int, Sequence[Answer]]
    ) -> None:
        """Where a node has lost what a majority keeps. Who is released meanwhile must not come back by this."""
        asked: list[list[TakeBack]] = [[] for _ in range(self._count)]
        for place, answers in kept.items():
            hold, record = holds[place], records[place]
            for node, answer in enumerate(answers):
                if answer is False and record.token and not record.is_over:
                    record.asked |= {node}
                    asked[node].append(
                        TakeBack(hold.name, hold.owner, record.attempt, hold.ttl, record.label, record.token)
                    )
        requests = [Each(each) if each else None for each in asked]
        if not any(requests):
            return
        await self._nodes.poll(requests, Roll(self._count, self._count - requests.count(None)))
        for node, each in enumerate(asked):
            for request in each:
                known = self._records.find(request.owner)
                if known is None or known.is_over:
                    self._nodes.send(Free(request.name, request.owner), [node])

    # -- giving back ---------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        record = self._end(hold.owner)
        requests, ballot = self._frees(hold, record)
        await self._nodes.poll(requests, ballot)
        answers = ballot.answers
        if not self._has_freed(hold, answers):
            return self._no_majority(answers)  # some may still have it: they are asked again
        if ballot.is_free or record is None:
            return None
        reason = (await self._why([hold], [record]))[0]
        was_broken = reason == "broken" or isinstance(reason, Broken)
        return reason if was_broken or self._is_gone(answers) else None

    async def release_lazily(self, hold: Hold, told: Callable[[bool], None]) -> None:
        record = self._end(hold.owner)
        requests, ballot = self._frees(hold, record)
        if not self._nodes.begin(requests, ballot, _Later(self, hold, ballot, told)):
            answer = await self.release(hold)
            if not isinstance(answer, Unreachable):
                told(answer is None)

    def freed_later(self, hold: Hold, ballot: FreeBallot, told: Callable[[bool], None]) -> None:
        """The nodes have answered to a release that nobody waited for. If one has not, nobody is told: then a clean-up
        follows."""
        if self._has_freed(hold, ballot.answers):
            told(ballot.is_free or not self._is_gone(ballot.answers))

    async def read_late(self, within: float = 0.0) -> bool:
        return await self._nodes.read_late(within)

    def _frees(self, hold: Hold, record: Record | None) -> tuple[list[Request | None], FreeBallot]:
        asked = self._everyone if record is None else record.asked
        free = Free(hold.name, hold.owner)
        requests: list[Request | None] = [free] * self._count
        if len(asked) < self._count:
            requests = [free if node in asked else None for node in range(self._count)]
        return requests, FreeBallot(self._count, len(asked))

    def _has_freed(self, hold: Hold, answers: Sequence[Answer]) -> bool:
        """Nothing of it is left, as far as nodes have answered. False if one has failed."""
        self._wake(hold.name, answers)
        if failures(answers):
            return False
        self._records.end(hold.owner)
        return True

    def _is_gone(self, answers: Sequence[Answer]) -> bool:
        """So many did not have it that it was lost before."""
        return self._is_short(sum(isinstance(answer, Freed) and not answer.was_held for answer in answers))

    def _wake(self, name: str, answers: Sequence[Answer], least: int = 1) -> None:
        """Somebody who waits, if so many nodes say that the lock is free there and somebody does."""
        told = [node for node, answer in enumerate(answers) if isinstance(answer, Freed) and answer.has_waiters]
        if len(told) >= least:
            self._nodes.send(Wake(name), told[:WOKEN_AT])

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        troubles: list[Unreachable | None] = []
        for start in range(0, len(holds), CHUNK):
            troubles += await self._abandon(holds[start : start + CHUNK])
        return troubles

    async def _abandon(self, holds: Sequence[Hold]) -> list[Unreachable | None]:
        """Node by node, those who may have something there."""
        records = [self._end(hold.owner) for hold in holds]
        asked = [self._everyone if record is None else record.asked for record in records]
        places = [[place for place, those in enumerate(asked) if node in those] for node in range(self._count)]
        requests = [
            Each([Free(holds[place].name, holds[place].owner) for place in each]) if each else None for each in places
        ]
        roll = Roll(self._count, self._count - requests.count(None))
        if roll.pending:
            await self._nodes.poll(requests, roll)
        by_hold: list[list[Answer]] = [[None] * self._count for _ in holds]
        for node, answer in enumerate(roll.answers):
            each = answer if isinstance(answer, list) else [answer] * len(places[node])
            for place, single in zip(places[node], each, strict=True):
                by_hold[place][node] = single
        return [self._abandoned(hold, answers) for hold, answers in zip(holds, by_hold, strict=True)]

    def _abandoned(self, hold: Hold, answers: Sequence[Answer]) -> Unreachable | None:
        if failures(answers):
            return self._no_majority(answers)
        self._records.end(hold.owner)
        self._wake(hold.name, answers, least=majority(self._count))
        return None

    def _end(self, owner: str) -> Record | None:
        """Before anything is released: no node may be taken back from now on."""
        record = self._records.find(owner)
        if record is not None:
            record.is_over = True
        return record

    def forget(self, owner: str) -> None:
        self._records.end(owner)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """It is not repeated on a connection that turns out to be closed: the second might free the next one's. So it
        looks first, which may be repeated."""
        looked = await self.inspect(name)
        if isinstance(looked, Unreachable):
            return looked
        answers = await self._ask_all(ForceRelease(name, note))
        if self._is_short(len(failures(answers))):
            return self._no_majority(answers)
        self._wake(name, answers)
        return any(isinstance(answer, Freed) and answer.was_held for answer in answers)

    # -- looking -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        answers = await self._ask_all(Inspect(name))
        if self._is_short(len(failures(answers))):
            return unreachable(summary.no_majority(self._nodes.names, answers, is_none_said=True))
        return summary.holder(answers, self._count, unknown=len(failures(answers)))

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        return await summary.page(self._nodes, prefix, after)

    # --------------------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._nodes.shut()

    async def close(self) -> None:
        await self._nodes.close()

    async def _ask_all(self, request: Request, within: float = math.inf) -> list[Answer]:
        roll = Roll(self._count, self._count)
        await self._nodes.poll([request] * self._count, roll, within)
        return roll.answers

    def _is_short(self, missing: int) -> bool:
        """So many nodes can't be done without."""
        return missing > self._count - majority(self._count)

    def _no_majority(self, answers: Sequence[Answer]) -> Unreachable:
        return unreachable(summary.no_majority(self._nodes.names, answers))


class _Later:
    """Told when the ballot of a release is decided that nobody waits for. Once: nodes that answer later keep its poll
    alive, and must not keep what is told."""

    __slots__ = ("_ballot", "_hold", "_store", "_told")

    def __init__(self, store: RedlockStore, hold: Hold, ballot: FreeBallot, told: Callable[[bool], None]) -> None:
        self._store = store
        self._hold = hold
        self._ballot = ballot
        self._told: Callable[[bool], None] | None = told

    def done(self) -> bool:
        return self._told is None

    def set_result(self, error: Exception | None, /) -> None:
        told, self._told = self._told, None
        if told is not None and error is None:
            self._store.freed_later(self._hold, self._ballot, told)


def _those(answers: Sequence[Answer], *kinds: type) -> list[int]:
    return [node for node, answer in enumerate(answers) if isinstance(answer, kinds)]


def _reached(answers: Sequence[Answer]) -> frozenset[int]:
    """All but those that were not even asked."""
    return frozenset(node for node, answer in enumerate(answers) if not isinstance(answer, Failed) or answer.was_asked)


def _worst(answers: Sequence[Answer]) -> Loss:
    """If nobody can tell why, they have run out."""
    for answer in answers:
        if isinstance(answer, Broken):
            return answer
    reasons = set(answers)
    return "broken" if "broken" in reasons else "taken" if "taken" in reasons else "expired"
