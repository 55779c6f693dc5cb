"""A Redis server with replicas whose roles change: replicas are cut off and promoted, primaries demoted, or not told.

A client stays with the server it is connected to for as long as that is a primary; otherwise it finds the one that was
promoted last. Contents and scripts are those of `engines.redis`. What a server says of itself (INFO) is as in Redis:
its run id stays the same when it is demoted and promoted again; the id of its history, its replid, changes with each
promotion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from gripfast_lab.engines.port import Answer, Happening
from gripfast_lab.engines.redis import DOWN, EMPTY, Contents
from gripfast_lab.moves import Ask
from gripfast_lab.sim.redis.keyspace import About

T = TypeVar("T")

PRIMARY, REPLICA, CUT_OFF, GONE = "primary", "replica", "cut off", "down"


class Roles(NamedTuple):
    roles: tuple[str, ...]
    has: tuple[int, ...]
    replids: tuple[int, ...]
    """Numbers: the later the promotion, the larger."""
    connected: tuple[tuple[str, int], ...] = ()
    """Whom each client has its connection to."""


class Changing:
    """`begins`: a script that the primary runs before anything else happens."""

    def __init__(self, replicas: int, begins: str = "") -> None:
        self.nodes = ("primary", *(f"replica {place}" for place in range(1, replicas + 1)))
        self._contents = Contents()
        self._begins = begins

    def start(self) -> Roles:
        replicas = len(self.nodes) - 1
        state = Roles((PRIMARY, *(REPLICA,) * replicas), (EMPTY,) * (1 + replicas), (0,) * (1 + replicas))
        if not self._begins:
            return state
        has, _ = self._contents.asked(EMPTY, Ask(("lock", ""), script=self._begins), self._about(state, 0))
        return state._replace(has=(has,) * len(self.nodes))

    def asked(self, state: Roles, who: str, what: Ask) -> tuple[str, ...]:
        return (self.nodes[self._finds(state, who)],)

    def ask(self, state: Roles, who: str, what: Ask, missing: str = "") -> Answer | None:
        place = self._finds(state, who)
        if what.commands[0].startswith("WAIT"):
            if dict(state.connected).get(who) != place:
                return Answer(state, None)  # that connection broke with the primary
            following, number = self._following(state), int(what.commands[0].split()[1])
            have_it = [each for each in following if state.has[each] == state.has[place]]
            is_over = len(have_it) >= number or len(following) < number  # then its time-out is
            return Answer(state, len(have_it)) if is_over else None
        after, reply = self._contents.asked(state.has[place], what._replace(at=""), self._about(state, place))
        connected = tuple(sorted({**dict(state.connected), who: place}.items()))
        return Answer(state._replace(has=_put(state.has, place, after), connected=connected), reply)

    def passes(self, state: Roles, seconds: int, silent: frozenset[str]) -> Roles:
        return state._replace(has=tuple(self._later(each, seconds) for each in state.has))

    def lapsed(self, before: Roles, after: Roles) -> str:
        place = self._serves(before)
        gone = self._contents.gone(before.has[place], after.has[place])
        return f"{gone} expires at {self.nodes[place]}" if gone else ""

    def next(self, state: Roles, silent: frozenset[str]) -> int | None:
        primaries = (has for has, role in zip(state.has, state.roles, strict=True) if role == PRIMARY)
        return min((left for has in primaries if (left := self._contents.next(has)) is not None), default=None)

    def closed(self, state: Roles, who: str) -> Roles:
        return state

    def happenings(self, state: Roles) -> Iterator[Happening]:
        serves = self._serves(state)
        primary = self.nodes[serves]
        for place, role in enumerate(state.roles):
            node = self.nodes[place]
            if role == REPLICA and state.has[place] != state.has[serves]:
                copied = state._replace(has=_put(state.has, place, state.has[serves]))
                yield Happening("", node, f"{node} gets what {primary} has", copied, "copy", source=primary)
            if role == REPLICA:
                cut = state._replace(roles=_put(state.roles, place, CUT_OFF))
                yield Happening("replica cut off", node, f"{node} is cut off from {primary}", cut, "cut off")
            if role in (REPLICA, CUT_OFF):
                yield from self._failovers(self._promoted(state, place), serves, place)

    def _failovers(self, promoted: Roles, old: int, new: int) -> Iterator[Happening]:
        primary, node = self.nodes[old], self.nodes[new]
        down = promoted._replace(roles=_put(promoted.roles, old, GONE), has=_put(promoted.has, old, DOWN))
        yield Happening("failover", primary, f"{primary} goes down, and {node} takes its place", down, "down")
        text = f"{node} takes the place of {primary}, which does not know of it and goes on"
        yield Happening("goes on", node, text, promoted, "promoted")
        demoted = promoted._replace(
            roles=_put(promoted.roles, old, REPLICA),
            has=_put(promoted.has, old, promoted.has[new]),
            replids=_put(promoted.replids, old, promoted.replids[new]),
        )
        text = f"{node} takes the place of {primary}, which becomes its replica and gets its data"
        yield Happening("switch-over", node, text, demoted, "promoted")

    def _promoted(self, state: Roles, place: int) -> Roles:
        number = max(state.replids) + 1
        roles, replids = _put(state.roles, place, PRIMARY), _put(state.replids, place, number)
        return state._replace(roles=roles, replids=replids)

    def _serves(self, state: Roles) -> int:
        """The primary that was promoted last."""
        primaries = [place for place, role in enumerate(state.roles) if role == PRIMARY]
        return max(primaries, key=lambda place: state.replids[place])

    def _finds(self, state: Roles, who: str) -> int:
        place = dict(state.connected).get(who)
        return place if place is not None and state.roles[place] == PRIMARY else self._serves(state)

    def _following(self, state: Roles) -> list[int]:
        return [place for place, role in enumerate(state.roles) if role == REPLICA]

    def _about(self, state: Roles, place: int) -> About:
        followers = len(self._following(state)) if place == self._serves(state) else 0
        return About(b"%040x" % (place + 1), False, b"%040x" % (100 + state.replids[place]), followers)

    def _later(self, has: int, seconds: int) -> int:
        return has if has == DOWN else self._contents.later(has, seconds)


def _put(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])
