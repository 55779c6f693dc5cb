"""A state of a few servers and clients, and what can happen next.

- A client *claims*, *renews* and *releases* at any server that is a primary; it may repeat its release, whose answer it
  has not read. While it waits, it listens at the server that has answered it.
- Replicas get a primary's writes in order. How far each of them is need not be decided before it matters: when it
  acknowledges it has everything, and when it is promoted it has any beginning.
- A server *crashes*, is *promoted* (and where an old primary may go on, that one does not know of it), is *demoted*, or
  *syncs*: it gets all that a primary has, and follows it. One that crashed comes back by that, as another process.
- *Time passes*: half of a ttl, or all of it.

A belief is from the answer on, for one ttl. What must hold: two clients never believe at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from gripfast.core.ports import Claim, Granted, Hold, Taken
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.protocol import new_channel
from gripfast_lab.sim.failover.servers import EMPTY, Acks, Done, Request, Servers, Told, Who

TTL = 10.0
TTL_MS = 10_000
PAST_MS = 20
"""Milliseconds: when a ttl has passed, what has lasted for a ttl is over everywhere."""
LOCK = "job"
NOBODY = -1

PRIMARY, REPLICA, DOWN = "primary", "replica", "down"
IDLE, WAITS, HOLDS, RELEASED, OVER = "idle", "waits", "holds", "released", "over"


class Srv(NamedTuple):
    role: str
    contents: int = EMPTY
    follows: int = NOBODY
    run: int = 0
    replid: int = 0
    behind: frozenset[int] = frozenset()
    """What the one that it follows has had since: with any beginning of that, it has one of these."""
    listed: frozenset[int] = frozenset()
    """The followers that it believes to have."""


class Cli(NamedTuple):
    phase: str = IDLE
    until: int = 0
    """Milliseconds: while it holds; while it waits, when its last request left."""
    at: int = NOBODY
    """Where it listens."""
    is_pushed: bool = False
    """What it is pushed there counts."""


class State(NamedTuple):
    now: int
    servers: tuple[Srv, ...]
    clients: tuple[Cli, ...]
    promotions: int
    passes: int
    """How many are left, as `promotions`."""
    replids: int = 1


class Rule(NamedTuple):
    """What is done against failovers."""

    level: int = 0


NOTHING = Rule()

Label = tuple[Any, ...]
Step = tuple[Label, State]


@dataclass
class Failovers:
    """A model for the explorer."""

    name: str
    rule: Rule = NOTHING
    servers: int = 2
    clients: int = 2
    promotions: int = 2
    passes: int = 2
    goes_on: bool = False
    """An old primary may go on; otherwise one is promoted when there is none."""
    waits: bool = False
    """Clients wait for each other, so that the lock is handed over."""
    strangers: bool = False
    """Servers that are never promoted follow a primary, too, and acknowledge."""

    def __post_init__(self) -> None:
        replicas = self.servers - 1
        needed = replicas if self.rule.level == 2 else 0
        failover = Failover(TTL, 0.0, needed) if self.rule.level else None
        self.table = Servers(failover, self.servers)

    def starts(self) -> Iterator[State]:
        replicas = range(1, self.servers)
        contents = self._prepared() if self.rule.level else EMPTY
        primary = Srv(PRIMARY, contents, listed=frozenset(replicas))
        servers = (primary, *(Srv(REPLICA, contents, follows=0) for _ in replicas))
        yield State(0, servers, (Cli(),) * self.clients, self.promotions, self.passes)

    def _prepared(self) -> int:
        """What all of them have after `gripfast init`."""
        replicas = frozenset(range(1, self.servers))
        who = Who(EMPTY, 0, 0, 0, replicas, frozenset())
        return self.table.do(who, 0, Acks(replicas), "init", b"", lambda store: store.prepare(None)).contents

    def steps(self, state: State) -> Iterator[Step]:
        if sum(each.phase in (IDLE, WAITS, HOLDS) for each in state.clients) < 2:
            return  # there will be no two holders any more
        for place, server in enumerate(state.servers):
            if server.role == PRIMARY:
                yield from self._requests(state, place)
        for place in range(len(state.servers)):
            yield from self._happenings(state, place)
        if state.passes:
            for ms in (TTL_MS + PAST_MS, TTL_MS // 2 + PAST_MS):
                yield ("time", ms), _later(state, ms)

    def wrong(self, state: State) -> str | None:
        holders = [place for place, each in enumerate(state.clients) if each.phase == HOLDS]
        if len(holders) > 1:
            return f"two holders: {' and '.join(_client(each) for each in holders)}"
        return None

    def tell(self, label: Label) -> str:
        return TEXTS[label[0]].format(*(_SHOWN[label[0]](label)))

    # Requests --------------------------------------------------------------------------------------------------------

    def _requests(self, state: State, place: int) -> Iterator[Step]:
        for who, client in enumerate(state.clients):
            if client.phase in (IDLE, WAITS):
                # Those who have done nothing yet are alike: that the first of them begins will do.
                if client == Cli() and Cli() in state.clients[:who]:
                    continue
                yield from self._asked(state, place, who, "claims")
            elif client.phase == HOLDS:
                yield from self._asked(state, place, who, "renews")
                yield from self._asked(state, place, who, "releases")
            elif client.phase == RELEASED:
                yield from self._asked(state, place, who, "releases again")

    def _asked(self, state: State, place: int, who: int, what: str) -> Iterator[Step]:
        for acks in self._acks(state, place):
            done = self._do(state, place, who, what, acks)
            if acks != Acks() and not done.waited:
                return  # nobody asked them
            after = self._written(state, place, done, acks.by)
            label = (what, who, place, _said(done.answer), acks if done.waited else None)
            yield label, self._believed(after, place, who, what, done)
        assert state.servers[place].role == PRIMARY

    def _acks(self, state: State, place: int) -> Iterator[Acks]:
        """First that of nobody."""
        following = [each for each, other in enumerate(state.servers) if other.follows == place]
        for count in range(len(following) + 1):
            for acking in combinations(following, count):
                yield Acks(frozenset(acking))
                if self.strangers:
                    yield Acks(frozenset(acking), attaches=True)
                    for replaced in state.servers[place].listed - set(acking):
                        yield Acks(frozenset(acking), replaced)

    def _do(self, state: State, place: int, who: int, what: str, acks: Acks) -> Done:
        server = state.servers[place]
        listeners = frozenset(
            channel_of(each, place) for each, client in enumerate(state.clients) if client.at == place
        )
        asked = Who(server.contents, place, server.run, server.replid, server.listed, listeners)
        name = what, who, self.waits
        return self.table.do(asked, state.now, acks, name, channel_of(who, place), self._request(who, what))

    def _request(self, who: int, what: str) -> Request:
        owner = _owner(who)
        if what == "claims":
            inbox = Told() if self.waits else None
            return lambda store: store.claim(Claim(LOCK, owner, TTL, None, inbox))
        if what == "renews":
            return lambda store: store.renew([Hold(LOCK, owner, TTL)])
        return lambda store: store.release(Hold(LOCK, owner, TTL))

    def _written(self, state: State, place: int, done: Done, acking: frozenset[int]) -> State:
        """Those that acknowledge have all of it; the others may get it later."""
        servers = list(state.servers)
        if done.contents != servers[place].contents:
            servers[place] = servers[place]._replace(contents=done.contents)
            for each, other in enumerate(servers):
                if other.follows == place:
                    servers[each] = other._replace(behind=other.behind | {done.contents})
        if done.wrote:
            for each in acking:
                servers[each] = servers[each]._replace(contents=done.contents, behind=frozenset())
        return state._replace(servers=tuple(servers))

    def _believed(self, state: State, place: int, who: int, what: str, done: Done) -> State:
        for owner, granted in done.pushed:
            state = self._pushed(state, place, owner, granted)
        client, until = state.clients[who], state.now + TTL_MS
        answer = done.answer
        if what == "claims" and isinstance(answer, Granted):
            client = Cli(HOLDS, until)
        elif what == "claims" and isinstance(answer, Taken) and self.waits:
            client = Cli(WAITS, state.now, place, answer.source == channel_of(who, place))
        elif what == "claims" and self.waits and answer.ready_in is not None:
            client = Cli(WAITS, state.now, place)  # it is queued there, and asks again
        elif what == "renews" and answer[0] is None:
            client = client._replace(until=until)
        elif what == "renews" and isinstance(answer[0], str):
            client = Cli(OVER)
        elif what == "releases":
            client = Cli(RELEASED)
        elif what == "releases again":
            client = Cli(OVER)
        return _with_client(state, who, client)

    def _pushed(self, state: State, place: int, owner: str, granted: Granted) -> State:
        """It is dated by the last answer, of the same server."""
        for who, client in enumerate(state.clients):
            if _owner(who) == owner and client.is_pushed and client.at == place:
                until = client.until + int(granted.ttl * 1000)
                return _with_client(state, who, Cli(HOLDS, until)) if until > state.now else state
        return state

    # Servers ---------------------------------------------------------------------------------------------------------

    def _happenings(self, state: State, place: int) -> Iterator[Step]:
        server = state.servers[place]
        primaries = [each for each, other in enumerate(state.servers) if other.role == PRIMARY]
        if server.role == PRIMARY and (state.promotions or len(primaries) > 1):
            if not self.goes_on:
                yield ("crashes", place), _with_server(state, place, _down(server))
            yield ("demoted", place), _with_server(state, place, _demoted(server))
        elif server.role == REPLICA and state.promotions and (self.goes_on or not primaries):
            for contents in sorted(server.behind | {server.contents}):
                is_late = bool(server.behind - {server.contents}) and contents == server.contents
                yield ("promoted", place, is_late), _promoted(state, place, contents)
        if server.role != PRIMARY:
            for primary in primaries:
                if server.role == DOWN or server.follows != primary:
                    yield ("syncs", place, primary), _synced(state, place, primary)


def _down(server: Srv) -> Srv:
    return server._replace(role=DOWN, follows=NOBODY, behind=frozenset(), listed=frozenset(), run=server.run + 1)


def _demoted(server: Srv) -> Srv:
    """Not synced yet."""
    return server._replace(role=REPLICA, follows=NOBODY, behind=frozenset(), listed=frozenset())


def _promoted(state: State, place: int, contents: int) -> State:
    server = state.servers[place]
    server = server._replace(role=PRIMARY, contents=contents, follows=NOBODY, behind=frozenset(), replid=state.replids)
    state = state._replace(promotions=state.promotions - 1, replids=state.replids + 1)
    return _with_server(state, place, server)


def _synced(state: State, place: int, primary: int) -> State:
    server, source = state.servers[place], state.servers[primary]
    server = server._replace(
        role=REPLICA, contents=source.contents, follows=primary, behind=frozenset(), replid=source.replid
    )
    state = _with_server(state, place, server)
    return _with_server(state, primary, source._replace(listed=source.listed | {place}))


def _later(state: State, ms: int) -> State:
    now = state.now + ms
    clients = tuple(Cli(OVER) if each.phase == HOLDS and each.until <= now else each for each in state.clients)
    return state._replace(now=now, clients=clients, passes=state.passes - 1)


def _with_server(state: State, place: int, server: Srv) -> State:
    return state._replace(servers=(*state.servers[:place], server, *state.servers[place + 1 :]))


def _with_client(state: State, place: int, client: Cli) -> State:
    return state._replace(clients=(*state.clients[:place], client, *state.clients[place + 1 :]))


def channel_of(client: int, server: int) -> bytes:
    return new_channel(f"{client}-{server}")


def _owner(who: int) -> str:
    return f"{who:032d}"


def _client(who: int) -> str:
    return "ABCD"[who]


def _server(place: int) -> str:
    return f"S{place + 1}"


def _said(answer: Any) -> str:
    if isinstance(answer, list):
        answer = answer[0]
    if isinstance(answer, Granted):
        return "granted"
    if isinstance(answer, Taken):
        return "taken"
    return "yes" if answer is None else f"no: {answer}" if isinstance(answer, str) else "not believed"


TEXTS = {
    **dict.fromkeys(("claims", "renews", "releases", "releases again"), "{0} {1} at {2}: {3}{4}"),
    "crashes": "{0} crashes",
    "demoted": "{0} is demoted",
    "promoted": "{0} is promoted{1}",
    "syncs": "{0} gets all that {1} has, and follows it",
    "time": "time passes: {0} s",
}


def _asked_words(label: Label) -> tuple[str, ...]:
    what, who, place, said, acks = label
    return _client(who), what, _server(place), said, "" if acks is None else f", acknowledged by {_by(acks)}"


def _by(acks: Acks) -> str:
    names = [_server(each) for each in sorted(acks.by)]
    if acks.attaches:
        names.append("a stranger that attached meanwhile")
    if acks.replaced is not None:
        names.append(f"a stranger instead of {_server(acks.replaced)}")
    return ", ".join(names) or "none"


_SHOWN: dict[str, Any] = {
    **dict.fromkeys(("claims", "renews", "releases", "releases again"), _asked_words),
    "crashes": lambda label: (_server(label[1]),),
    "demoted": lambda label: (_server(label[1]),),
    "promoted": lambda label: (_server(label[1]), ", and the last writes have not reached it" if label[2] else ""),
    "syncs": lambda label: (_server(label[1]), _server(label[2])),
    "time": lambda label: (f"{label[1] / 1000:g}",),
}
