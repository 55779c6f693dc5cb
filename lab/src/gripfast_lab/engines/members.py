"""A cluster of etcd, as its clients see it: keys with revisions, leases, and two members that may both lead.

m1 leads at first; m2 stands for the others, who are a majority. What they have agreed upon is the same for all. The
seconds of a lease are not: a leader counts them by itself.

If the disk of m1 stalls, the others elect m2, which counts all leases anew. m1 does not know of it. It agrees upon
nothing any more, but it answers keep-alives, and counts down what it hears nothing of. What it finds expired it means
to revoke: when its disk goes on, that reaches the new leader, and takes effect.

Real requests that reach m1 meanwhile may take effect later. Here they are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gripfast_lab.engines.port import Answer, Happening
from gripfast_lab.moves import TTL, Ask

TAKE = "if there is no key: put mine, under a new lease"
KEEP_ALIVE = "keep my lease alive"
READ = "is my key there? (linearizable)"
MOVE = "if my key is as I left it: put it under a new lease"
RELEASE = "delete my key"

JOIN = "put my key, under my lease"
KEYS = "which keys are there?"
GONE = "tell me when key {} is gone"
DELETE = "delete key {}"

YES, NO = "yes", "no"


class Key(NamedTuple):
    number: int
    """The revision that created it."""
    owner: str
    left: int
    """Seconds of its lease, as the leader counts them."""
    at_m1: int | None = None
    """As m1 does, if it still takes itself for the leader, and knows this lease. At 0 it means to revoke it."""


class Has(NamedTuple):
    keys: tuple[Key, ...] = ()
    revision: int = 0
    is_stalled: bool = False
    """The disk of m1."""
    leads: str = "m1"


class Members:
    """`at`: the member that a client is connected to, m2 if it is not said. `kept`: libraries keep the leases of those
    alive that are not silent; otherwise programs do so themselves."""

    nodes = ("m1", "m2")

    def __init__(self, at: Mapping[str, str] | None = None, kept: bool = False) -> None:
        self._at = at or {}
        self._is_kept = kept

    def start(self) -> Has:
        return Has()

    def asked(self, has: Has, who: str, what: Ask) -> tuple[str, ...]:
        return (self._at.get(who, "m2"),)

    def ask(self, has: Has, who: str, what: Ask, missing: str = "") -> Answer | None:
        (command,) = what.commands
        mine = next((key for key in has.keys if key.owner == who), None)
        if has.is_stalled and self._at.get(who) == "m1":
            return self._at_m1(has, mine, command)
        if command == TAKE:
            return Answer(has, NO) if has.keys else Answer(self._put(has, who), YES)
        if command == JOIN:
            has = self._put(has, who)
            return Answer(has, has.revision)
        if command == KEYS:
            return Answer(has, tuple(key.number for key in has.keys))
        if command in (KEEP_ALIVE, READ, MOVE):
            return Answer(has, NO) if mine is None else self._on(has, mine, command)
        if command == RELEASE:
            return Answer(has if mine is None else _without(has, mine.number), "done")
        return self._about_a_key(has, command)

    def _on(self, has: Has, mine: Key, command: str) -> Answer:
        """What is there."""
        if command == KEEP_ALIVE:
            return Answer(_with(has, mine._replace(left=TTL)), YES)
        if command == MOVE:
            moved = mine._replace(left=TTL, at_m1=None)  # m1 does not know the new lease
            return Answer(_with(has, moved), YES)
        return Answer(has, YES)

    def _about_a_key(self, has: Has, command: str) -> Answer | None:
        number = int(command.split("key ")[1].split()[0])
        if command == GONE.format(number):
            return None if any(key.number == number for key in has.keys) else Answer(has, "it is")
        if command == DELETE.format(number):
            return Answer(_without(has, number), "done")
        raise NotImplementedError(command)

    def _at_m1(self, has: Has, mine: Key | None, command: str) -> Answer:
        """It goes on as the leader that it was, as far as it needs nobody for that."""
        if command != KEEP_ALIVE:
            return Answer(has, None, unreached=("m1",))
        if mine is None or not mine.at_m1:  # the key may be gone by now: m1 has not been told
            return Answer(has, YES)
        return Answer(_with(has, mine._replace(at_m1=TTL)), YES)

    def _put(self, has: Has, who: str) -> Has:
        revision = has.revision + 1
        return has._replace(keys=(*has.keys, Key(revision, who, TTL)), revision=revision)

    # Time -------------------------------------------------------------------------------------------------------------

    def passes(self, has: Has, seconds: int, silent: frozenset[str]) -> Has:
        aged = (self._aged(key, seconds, silent) for key in has.keys)
        return has._replace(keys=tuple(key for key in aged if key.left > 0))

    def _aged(self, key: Key, seconds: int, silent: frozenset[str]) -> Key:
        if self._is_kept and key.owner not in silent:
            return key._replace(left=TTL)
        at_m1 = None if key.at_m1 is None else max(0, key.at_m1 - seconds)
        return key._replace(left=key.left - seconds, at_m1=at_m1)

    def next(self, has: Has, silent: frozenset[str]) -> int | None:
        counted = [key for key in has.keys if not self._is_kept or key.owner in silent]
        moments = [key.left for key in counted] + [key.at_m1 for key in counted if key.at_m1]
        return min(moments, default=None)

    def lapsed(self, before: Has, after: Has) -> str:
        there = {key.number: key for key in after.keys}
        texts = []
        for key in before.keys:
            if key.number not in there:
                texts.append(f"{key.owner}'s lease is over, and its key is gone")
            elif key.at_m1 and not there[key.number].at_m1:
                texts.append(f"m1 believes that {key.owner}'s lease has expired, and will revoke it")
        return "; ".join(texts)

    def closed(self, has: Has, who: str) -> Has:
        return has

    # What goes wrong --------------------------------------------------------------------------------------------------

    def happenings(self, has: Has) -> Iterator[Happening]:
        if has.is_stalled:
            revoked = tuple(key for key in has.keys if key.at_m1 == 0)
            left = tuple(key._replace(at_m1=None) for key in has.keys if key not in revoked)
            text = "the disk of m1 goes on" + "".join(f"; {key.owner}'s lease is revoked" for key in revoked)
            yield Happening("", "m1", text, has._replace(keys=left, is_stalled=False), "goes on")
        elif has.leads == "m1":
            anew = tuple(key._replace(left=TTL, at_m1=key.left) for key in has.keys)
            text = "the disk of m1 stalls; the others elect m2, which counts all leases anew"
            yield Happening("stalled disk", "m1", text, has._replace(keys=anew, is_stalled=True, leads="m2"), "stalls")


def _with(has: Has, changed: Key) -> Has:
    return has._replace(keys=tuple(changed if key.number == changed.number else key for key in has.keys))


def _without(has: Has, number: int) -> Has:
    return has._replace(keys=tuple(key for key in has.keys if key.number != number))
