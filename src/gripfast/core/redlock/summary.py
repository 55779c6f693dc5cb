"""What the answers of the nodes look like together: who has a lock, what is in it, and why there was no majority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gripfast.core.ports import LockInfo, Page, Unreachable, unreachable
from gripfast.core.redlock.ballot import Roll, majority
from gripfast.core.redlock.nodes import (
    Answer,
    Busy,
    Each,
    Failed,
    Inspect,
    Names,
    Newborn,
    Nodes,
    Scan,
    Unmarked,
)
from gripfast.errors import StoreUnavailable


def holder(answers: Sequence[Answer], nodes: int, unknown: int = 0) -> LockInfo | None:
    """Who has a majority; or may have, if so many nodes could not be asked. None if nobody has."""
    infos = max(_by_owner(answers).values(), key=len, default=[])
    return _together(infos, nodes) if infos and len(infos) + unknown >= majority(nodes) else None


def likely(answers: Iterable[Answer]) -> LockInfo | None:
    """Nobody has enough nodes: whoever has most."""
    infos = max(_by_owner(answers).values(), key=len, default=[])
    return _together(infos, len(infos)) if infos else None


def _by_owner(answers: Iterable[Answer]) -> dict[str, list[LockInfo]]:
    by_owner: dict[str, list[LockInfo]] = {}
    for answer in answers:
        info = answer.holder if isinstance(answer, Busy) else answer
        if isinstance(info, LockInfo):
            by_owner.setdefault(info.owner, []).append(info)
    return by_owner


def _together(infos: list[LockInfo], nodes: int) -> LockInfo:
    """Its token is the largest that its owner wrote anywhere; it is over when too many nodes have let go."""
    newest = max(infos, key=lambda info: info.token)
    lasting = sorted((info.expires_in for info in infos), reverse=True)
    expires_in = lasting[min(nodes - majority(nodes), len(lasting) - 1)]
    return replace(newest, expires_in=expires_in, waiters=max(info.waiters for info in infos))


def at(answers: Sequence[Answer], place: int) -> list[Answer]:
    """What the nodes said to one of several requests; a node that failed has failed for each."""
    return [answer[place] if isinstance(answer, list) else answer for answer in answers]


def each(answers: Iterable[Answer]) -> list[Answer]:
    """Of all requests."""
    return [single for answer in answers for single in (answer if isinstance(answer, list) else [answer])]


def no_majority(names: Sequence[str], answers: Sequence[Answer], is_none_said: bool = False) -> StoreUnavailable:
    """Every node's state, in words. `is_none_said`: None is an answer; otherwise none was heard."""
    states = {
        name: _UNHEARD if answer is None and not is_none_said else _state(name, answer)
        for name, answer in zip(names, answers, strict=True)
    }
    needed, answered = majority(len(names)), list(states.values()).count(_ANSWERED)
    trouble = "; ".join(f"{name} {state}" for name, state in states.items() if state != _ANSWERED)
    and_needed = f", and {needed} are needed" if answered < needed else ""
    return StoreUnavailable(f"{answered} of {len(names)} nodes gave a usable answer{and_needed}: {trouble}", states)


_ANSWERED = "answered"
_UNHEARD = "gave no answer before the result was clear"


def _state(name: str, answer: Answer) -> str:
    if isinstance(answer, list):
        answer = next((single for single in answer if isinstance(single, Failed)), None)
    if isinstance(answer, Failed):
        return answer.error.nodes.get(name, str(answer.error))
    if isinstance(answer, Unmarked):
        return (
            "has no birth marker, so it does not vote yet: it is new (then start all nodes), or restarted without its "
            "data (then wait for restart_grace)"
        )
    if isinstance(answer, Newborn):
        return f"restarted without its data: it votes again in {answer.votes_in:.3g} s (restart_grace)"
    return _ANSWERED


# Lists --------------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a list has got to: which node is looked through, how far, and which ones could not be."""

    node: int = 0
    cursor: str = "0"
    passed_over: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return " ".join([str(self.node), self.cursor, *map(str, sorted(self.passed_over))])

    @classmethod
    def read(cls, text: str) -> _Place:
        node, cursor, *passed_over = text.split(" ")
        return cls(int(node), cursor, frozenset(map(int, passed_over)))


async def page(nodes: Nodes, prefix: str, after: str | None) -> Page | Unreachable:
    """One node after the other is looked through. A lock that is held is told by the first of them that has it."""
    place = _Place() if after is None else _Place.read(after)
    found = await _names(nodes, place.node, Scan(prefix, place.cursor))
    names: Sequence[str] = ()
    if isinstance(found, Failed):
        place = place._replace(cursor="0", passed_over=place.passed_over | {place.node})
        earlier = Failed(StoreUnavailable("could not be reached a moment ago"), was_asked=True)
        answers: list[Answer] = [earlier if node in place.passed_over else None for node in range(len(nodes.names))]
        answers[place.node] = found
    else:
        place, names = place._replace(cursor=found.cursor), found.names
        answers = await _look(nodes, names) if names else []
    if sum(isinstance(answer, Failed) for answer in answers) > len(nodes.names) - majority(len(nodes.names)):
        return unreachable(no_majority(nodes.names, answers))
    infos = [_told_here(at(answers, number), place) for number in range(len(names))]
    return Page([info for info in infos if info is not None], _next(place, len(nodes.names)))


def _told_here(seen: Sequence[Answer], place: _Place) -> LockInfo | None:
    """Who holds it, unless a node that was looked through before has told already."""
    before = (answer for node, answer in enumerate(seen[: place.node]) if node not in place.passed_over)
    return None if any(isinstance(answer, LockInfo) for answer in before) else holder(seen, len(seen))


async def _names(nodes: Nodes, node: int, scan: Scan) -> Names | Failed:
    count = len(nodes.names)
    roll = Roll(count, 1)
    await nodes.poll([scan if each == node else None for each in range(count)], roll)
    answer = roll.answers[node]
    assert isinstance(answer, Names | Failed)
    return answer


async def _look(nodes: Nodes, names: Sequence[str]) -> list[Answer]:
    count = len(nodes.names)
    roll = Roll(count, count)
    await nodes.poll([Each([Inspect(name) for name in names])] * count, roll)
    return roll.answers


def _next(place: _Place, nodes: int) -> str | None:
    if place.cursor == "0":
        place = place._replace(node=place.node + 1)
    return str(place) if place.node < nodes else None
