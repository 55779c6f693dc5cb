"""A small world of the lock on etcd, all of it: every order in which a few requests can take effect.

The transactions, and how their answers are read, are production's (`protocol`); the log is the simulated one (`state`).
What a client does with them stands here once more, in short. So this searches the protocol, and the scenario `etcd` the
store that follows it.

- A request is under way until it takes effect, at any time, or never. Its client may give up on it before that, and
  then sends another one, or cleans up. So any request may come late.
- Every claim and every renewal has a new lease, which is granted when the request leaves. It may be revoked from when
  it is over, at any time, or never: that is all that leaders, members and their clocks can make of it.
- Time passes in steps; a lease lasts for `TTL` of them.

A belief lasts for one ttl from when the request left. What must hold: two clients never believe at once, and tokens
grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.messages import DeleteRangeRequest, KeyValue, LeaseRevokeRequest
from gripfast.stores.etcd.protocol import Busy, Entry, Gone, Known, Place, Waits, Won
from gripfast_lab.sim.etcd.state import Lease, Refused, State
from gripfast_lab.sim.explore import Report, explore

TTL = 2
QUEUE = b"job/"
GRANTED, WAITING = b"{}", b'{"waits": true}'
IDLE, WAITS, HOLDS, OVER = "idle", "waits", "holds", "over"
NOBODY = -1


class Kept(NamedTuple):
    """What the cluster has."""

    revision: int = 1
    keys: tuple[KeyValue, ...] = ()
    leases: tuple[tuple[int, int], ...] = ()
    """And when each was granted."""


class Sent(NamedTuple):
    who: int
    number: int
    what: str
    request: Any
    at: int
    lease: int


class Cli(NamedTuple):
    phase: str = IDLE
    asked: int = 0
    """The number of the request that it waits for; 0: none."""
    sends: int = 0
    place: Place | None = None
    token: int = 0
    until: int = 0
    """While it holds."""


class World(NamedTuple):
    now: int
    kept: Kept
    clients: tuple[Cli, ...]
    under_way: frozenset[Sent] = frozenset()
    largest: int = 0
    """The largest token that was believed in."""
    last: str = ""
    """What is wrong, if that is known."""


Step = tuple[tuple[Any, ...], World]


@dataclass
class Queue:
    """A model for the explorer."""

    name: str
    sends: tuple[int, ...] = (3, 1)
    """Requests of each client, releases and clean-ups not counted."""
    ends: int = 3
    """When time is over."""
    _done: dict[tuple[Kept, Any], tuple[Kept, Any]] = field(default_factory=dict)

    def starts(self) -> Iterator[World]:
        yield World(0, Kept(), (Cli(),) * len(self.sends))

    def wrong(self, world: World) -> str | None:
        believers = [place for place, each in enumerate(world.clients) if each.phase == HOLDS]
        if len(believers) > 1:
            return f"two holders: {' and '.join(f'client {each + 1}' for each in believers)}"
        return world.last or None

    def tell(self, label: tuple[Any, ...]) -> str:
        what, who, *more = label
        text = f"client {who + 1} {what}" if who != NOBODY else what
        return " ".join([text, *map(str, more)])

    def steps(self, world: World) -> Iterator[Step]:
        if sum(each.phase != OVER for each in world.clients) < 2:
            return  # there will be no two holders any more
        for label, after in self._steps(world):
            yield label, _without_spent(after)

    def _steps(self, world: World) -> Iterator[Step]:
        for who, client in enumerate(world.clients):
            yield from self._acts(world, who, client)
        for sent in sorted(world.under_way, key=lambda sent: (sent.who, sent.number)):
            yield ("gets it done:", sent.who, sent.what, sent.number), self._arrives(world, sent)
        used = {kv.lease for kv in world.kept.keys}
        for lease, granted in world.kept.leases:
            # Where there is no key, the requests that name it are refused: as if they never came.
            if world.now >= granted + TTL and lease in used:
                yield (f"lease {lease} is revoked", NOBODY), self._revoked(world, lease)
        if world.now < self.ends:
            yield ("time passes", NOBODY), _later(world)

    # Clients --------------------------------------------------------------------------------------------------------

    def _acts(self, world: World, who: int, client: Cli) -> Iterator[Step]:
        if client.phase == OVER:
            return
        may_send = client.sends < self.sends[who]
        if client.asked:
            yield ("gives up on", who, client.asked), _with(world, who, client._replace(asked=0))
        elif client.phase == HOLDS:
            if may_send:
                yield ("renews", who), self._send(world, who, client, "renewal")
            yield ("releases", who), self._send(world, who, client, "release")
        else:
            if may_send:
                what = "claims" if client.place is None else "looks"
                yield (what, who), self._send(world, who, client, "claim")
            if client.sends:
                yield ("cleans up", who), self._send(world, who, client, "clean-up")

    def _send(self, world: World, who: int, client: Cli, what: str) -> World:
        number, key = client.sends + 1, QUEUE + b"%d" % who
        lease = 10 * (who + 1) + number
        if what == "release":
            assert client.place is not None
            request: Any = protocol.release(key, client.place.create)
        elif what == "clean-up":
            request = DeleteRangeRequest(key)
        elif what == "renewal":
            assert client.place is not None
            request = protocol.move(client.place, GRANTED, lease)
        elif client.place is None:
            request = protocol.claim(QUEUE, key, GRANTED, WAITING, lease)
        else:
            request = protocol.advance(client.place, QUEUE, GRANTED, WAITING, lease)
        kept = world.kept
        if what in ("renewal", "claim"):
            kept = kept._replace(leases=(*kept.leases, (lease, world.now)))
        sent = Sent(who, number, what, request, world.now, lease)
        is_last = what in ("release", "clean-up")
        after = client._replace(sends=number, asked=0 if is_last else number, phase=OVER if is_last else client.phase)
        return _with(world, who, after)._replace(kept=kept, under_way=world.under_way | {sent})

    # What takes effect ----------------------------------------------------------------------------------------------

    def _arrives(self, world: World, sent: Sent) -> World:
        kept, answer = self._do(world.kept, sent.request)
        world = world._replace(kept=kept, under_way=world.under_way - {sent})
        client = world.clients[sent.who]
        if client.asked != sent.number:
            return world
        client = client._replace(asked=0)
        if isinstance(answer, Refused):  # its lease is gone
            return _with(world, sent.who, client)
        if sent.what == "renewal":
            return self._moved(world, sent, client, answer)
        if client.place is None:
            outcome: Any = protocol.read_claim(answer, QUEUE + b"%d" % sent.who)
        else:
            outcome = protocol.read_advance(answer, client.place)
        return self._told(world, sent, client, outcome)

    def _told(self, world: World, sent: Sent, client: Cli, outcome: Won | Waits | Busy | Known | Gone) -> World:
        key = QUEUE + b"%d" % sent.who
        if isinstance(outcome, Won):
            create = outcome.revision if client.place is None else client.place.create
            client = client._replace(place=Place(key, create, outcome.revision), token=outcome.revision)
            return _granted(world, sent, client)
        if isinstance(outcome, Waits):
            return _with(world, sent.who, client._replace(phase=WAITS, place=outcome.place))
        if isinstance(outcome, Known):
            # What an earlier try has done is proved by a write: it is moved, or looks again.
            client = client._replace(place=protocol.place_of(outcome.mine), phase=WAITS)
        elif isinstance(outcome, Gone):
            client = client._replace(place=None, phase=IDLE)
        return _with(world, sent.who, client)

    def _moved(self, world: World, sent: Sent, client: Cli, answer: Any) -> World:
        assert client.place is not None
        moved = protocol.read_move(answer, client.place, answer.header.revision, sent.lease, str(sent.who))
        if isinstance(moved, Place):
            client = client._replace(place=moved)
            return _granted(world, sent, client) if client.phase == HOLDS else _with(world, sent.who, client)
        if isinstance(moved, Entry):
            return _with(world, sent.who, client._replace(place=protocol.place_of(moved)))
        return _with(world, sent.who, client._replace(phase=OVER))

    def _revoked(self, world: World, lease: int) -> World:
        return world._replace(kept=self._do(world.kept, LeaseRevokeRequest(lease))[0])

    def _do(self, kept: Kept, request: Any) -> tuple[Kept, Any]:
        known = self._done.get((kept, request))
        if known is None:
            known = self._done[(kept, request)] = _done(kept, request)
        return known


def _done(kept: Kept, request: Any) -> tuple[Kept, Any]:
    state = State()
    state.revision, state.keys = kept.revision, {kv.key: kv for kv in kept.keys}
    for number, _ in kept.leases:
        state.leases[number] = Lease(TTL, {kv.key: None for kv in kept.keys if kv.lease == number})
    try:
        answer = state.do(request)
    except Refused as refused:
        return kept, refused
    leases = tuple(each for each in kept.leases if each[0] in state.leases)
    return Kept(state.revision, tuple(state.keys[key] for key in sorted(state.keys)), leases), answer


def _granted(world: World, sent: Sent, client: Cli) -> World:
    """Unless that was too long ago."""
    until = sent.at + TTL
    if until <= world.now:
        return _with(world, sent.who, client)
    wrong = ""
    if client.phase != HOLDS and client.token <= world.largest:
        wrong = f"token {client.token} was granted after {world.largest}"
    largest = max(world.largest, client.token)
    return _with(world, sent.who, client._replace(phase=HOLDS, until=until))._replace(largest=largest, last=wrong)


def _with(world: World, who: int, client: Cli) -> World:
    return world._replace(clients=(*world.clients[:who], client, *world.clients[who + 1 :]))


def _without_spent(world: World) -> World:
    """No lease that nothing hangs on, or will."""
    used = {kv.lease for kv in world.kept.keys} | {sent.lease for sent in world.under_way}
    if all(lease in used for lease, _ in world.kept.leases):
        return world
    leases = tuple(each for each in world.kept.leases if each[0] in used)
    return world._replace(kept=world.kept._replace(leases=leases))


def _later(world: World) -> World:
    now = world.now + 1
    clients = tuple(
        each._replace(phase=OVER, asked=0) if each.phase == HOLDS and each.until <= now else each
        for each in world.clients
    )
    return world._replace(now=now, clients=clients)


WORLDS = {
    "etcd": Queue("etcd"),
    "etcd-large": Queue("etcd-large", ends=4),
}


def explored(name: str) -> Report:
    return explore(WORLDS[name])
