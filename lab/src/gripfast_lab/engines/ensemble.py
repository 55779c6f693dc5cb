"""A ZooKeeper ensemble, as its clients see it: numbered nodes that live as long as the session that made them.

A session ends when the ensemble has heard nothing of its client for TIME_OUT seconds. Clients that are alive and can
be heard of keep theirs by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gripfast_lab.engines.port import Answer, Happening
from gripfast_lab.moves import Ask

TIME_OUT = 10

CREATE = "create an ephemeral sequential node"
CHILDREN = "which nodes are there?"
GONE = "tell me when node {} is gone"
DELETE = "delete node {}"


class Has(NamedTuple):
    nodes: tuple[tuple[int, str], ...] = ()
    """Number and whose it is."""
    made: int = 0
    silent: tuple[tuple[str, int], ...] = ()
    """Of whom it has heard nothing, and seconds until that session ends."""


class Ensemble:
    nodes = ("ensemble",)

    def start(self) -> Has:
        return Has()

    def asked(self, has: Has, who: str, what: Ask) -> tuple[str, ...]:
        return self.nodes

    def ask(self, has: Has, who: str, what: Ask, missing: str = "") -> Answer | None:
        (command,) = what.commands
        if command == CREATE:
            made = has.made + 1
            return Answer(has._replace(nodes=(*has.nodes, (made, who)), made=made), made)
        numbers = tuple(number for number, _ in has.nodes)
        if command == CHILDREN:
            return Answer(has, numbers)
        number = int(command.split("node ")[1].split()[0])
        if command == GONE.format(number):
            return None if number in numbers else Answer(has, "it is")
        if command == DELETE.format(number):
            return Answer(has._replace(nodes=tuple(each for each in has.nodes if each[0] != number)), "done")
        raise NotImplementedError(command)

    def passes(self, has: Has, seconds: int, silent: frozenset[str]) -> Has:
        known = dict(has.silent)
        left = {who: known.get(who, TIME_OUT) - seconds for who in sorted(silent)}
        over = {who for who, seconds_left in left.items() if seconds_left <= 0}
        nodes = tuple(each for each in has.nodes if each[1] not in over)
        return has._replace(nodes=nodes, silent=tuple(each for each in left.items() if each[0] not in over))

    def lapsed(self, before: Has, after: Has) -> str:
        gone = dict.fromkeys(who for number, who in before.nodes if (number, who) not in after.nodes)
        return "; ".join(f"{who}'s session is over, and its node is gone" for who in gone)

    def next(self, has: Has, silent: frozenset[str]) -> int | None:
        known = dict(has.silent)
        owners = {who for _, who in has.nodes}
        return min((known.get(who, TIME_OUT) for who in silent if who in owners), default=None)

    def closed(self, has: Has, who: str) -> Has:
        return has

    def happenings(self, has: Has) -> Iterator[Happening]:
        return iter(())
