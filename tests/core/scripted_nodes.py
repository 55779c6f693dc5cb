"""Nodes that answer what a test tells them to, in the order that it likes, and remember what they were asked."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gripfast.core.ports import Claim, Granted, Hold, Inbox, LockInfo
from gripfast.core.redlock.nodes import LOCKED, Answer, Ballot, Busy, Decided, Each, Failed, Freed, Locked, Request
from gripfast.core.redlock.records import Records
from gripfast.core.redlock.store import RedlockStore
from gripfast.errors import StoreUnavailable
from gripfast.runtime.blocking import drive

WALL_US = 1_800_000_000_000_000
NAMES = ("redis://a", "redis://b", "redis://c", "redis://d", "redis://e")


class QuietInbox:
    """One that nobody speaks to."""

    def deliver(self, push: Granted | None) -> bool:
        return True

    async def hear(self, until: float) -> Granted | None:
        return None


@dataclass
class Poll:
    requests: list[Request | None]
    heard: list[int]
    """The nodes whose answers came before the decision."""

    @property
    def asked(self) -> list[int]:
        return [node for node, request in enumerate(self.requests) if request is not None]

    @property
    def single(self) -> Request:
        """What every node that was asked anything was asked."""
        requests = [request for request in self.requests if request is not None]
        assert requests
        assert all(request == requests[0] for request in requests)
        return requests[0]


@dataclass
class ScriptedNodes:
    names: Sequence[str] = NAMES
    polls: list[Poll] = field(default_factory=list)
    sent: list[tuple[Request, list[int]]] = field(default_factory=list)
    wall: int = WALL_US
    luck: float = 0.5
    listens: bool = True
    """Whether somebody listens at a majority."""
    listen_works: bool = True
    begins: bool = True
    times_listened: int = 0
    is_shut: bool = False
    is_closed: bool = False
    _answers: deque[tuple[Sequence[Answer], Sequence[int]]] = field(default_factory=deque)

    # What a test says ------------------------------------------------------------------------------------------------

    def will_answer(self, *answers: Any, order: Sequence[int] | None = None) -> None:
        """To one poll, node by node; answers of nodes that are not asked are not given."""
        assert len(answers) == len(self.names)
        self._answers.append((answers, range(len(self.names)) if order is None else order))

    def all_answer(self, answer: Any) -> None:
        self.will_answer(*[answer] * len(self.names))

    @property
    def has_said_all(self) -> bool:
        return not self._answers

    # What a test asks ------------------------------------------------------------------------------------------------

    def sent_of(self, kind: type) -> list[tuple[Request, list[int]]]:
        return [(request, nodes) for request, nodes in self.sent if isinstance(request, kind)]

    def sent_to(self, kind: type) -> list[int]:
        """Every node that something of this kind was sent to."""
        return sorted(node for _, nodes in self.sent_of(kind) for node in nodes)

    def polled(self, kind: type) -> list[Poll]:
        """The polls in which a node was asked something of this kind, alone or together with others."""
        return [poll for poll in self.polls if any(isinstance(each, kind) for each in _singles(poll.requests))]

    # The port --------------------------------------------------------------------------------------------------------

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        self._vote(requests, ballot)

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        """Answered at once, unless a test says that it can't even be asked."""
        if self.begins:
            self._vote(requests, ballot)
            decided.set_result(None)
        return self.begins

    async def read_late(self, within: float = 0.0) -> bool:
        return False

    def _vote(self, requests: Sequence[Request | None], ballot: Ballot) -> None:
        assert len(requests) == len(self.names)
        assert self._answers, f"nobody expected {requests}"
        answers, order = self._answers.popleft()
        poll = Poll(list(requests), [])
        self.polls.append(poll)
        for node in order:
            if requests[node] is not None:
                poll.heard.append(node)
                if ballot.add(node, answers[node]):
                    return

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        self.sent.append((request, list(nodes)))

    def inbox(self) -> Inbox:
        return QuietInbox()

    def hears(self, owner: str, inbox: Inbox) -> bool:
        return self.listens

    async def listen(self) -> None:
        self.times_listened += 1
        self.listens = self.listens or self.listen_works

    def wall_us(self) -> int:
        return self.wall

    def chance(self) -> float:
        return self.luck

    def shut(self) -> None:
        self.is_shut = True

    async def close(self) -> None:
        self.is_closed = True


def _singles(requests: Iterable[Request | None]) -> list[Request]:
    singles: list[Request] = []
    for request in requests:
        if isinstance(request, Each):
            singles.extend(request.requests)
        elif request is not None:
            singles.append(request)
    return singles


# Answers ------------------------------------------------------------------------------------------------------------


def info(owner: str = "someone", token: int = 5, expires_in: float = 20.0, waiters: int = 0) -> LockInfo:
    return LockInfo("job", owner, token, None, "host", 1, None, expires_in, waiters)


def busy(owner: str = "someone", fence: int = 5, expires_in: float = 20.0) -> Busy:
    return Busy(info(owner, fence, expires_in), fence)


def locked_only(fence: int) -> Locked:
    """Locked, and the proposal refused because of this one."""
    return Locked(False, fence)


def down(node: int = 0, was_asked: bool = True, is_permanent: bool = False, why: str = "did not answer") -> Failed:
    where = NAMES[node]
    return Failed(StoreUnavailable(f"{where} {why}", {where: why}), was_asked, is_permanent)


YES = LOCKED
FREED = Freed(was_held=True, has_waiters=False)

# A store on such nodes ----------------------------------------------------------------------------------------------

TTL = 10.0
HOLD = Hold("job", "me", TTL)


class Stage:
    def __init__(self) -> None:
        self.nodes = ScriptedNodes()
        self.records = Records()
        self.store = RedlockStore(self.nodes, self.records)

    def claim(self, owner: str = "me", inbox: Inbox | None = None) -> Any:
        return drive(self.store.claim(Claim("job", owner, TTL, None, inbox)))

    def granted(self, *answers: Any, owner: str = "me") -> Granted:
        self.nodes.will_answer(*answers or [YES] * 5)
        granted = self.claim(owner)
        assert isinstance(granted, Granted)
        return granted

    def renew(self, *holds: Hold) -> Any:
        return drive(self.store.renew(holds or [HOLD]))

    def release(self) -> Any:
        return drive(self.store.release(HOLD))

    def abandon(self, *holds: Hold) -> Any:
        """What went wrong, if anything did."""
        return next((trouble for trouble in drive(self.store.abandon(holds or [HOLD])) if trouble is not None), None)

    def knows(self, owner: str = "me") -> bool:
        return self.records.find(owner) is not None
