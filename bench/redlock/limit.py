"""The limit: Gripfast's own scripts on five bare sockets, written together.

The commands are those that a client of Gripfast sends for a free lock, with a new owner and a new proposal each time.
Around them there is nothing: no time-out, no renewal, no thread that could ask in between, no node that is left out.
It comes in two: one that waits until all five have answered, and one that goes on with a majority, as Gripfast does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gripfast
from bench.gripfast_pair import Address, Times
from bench.redis.wire import NEEDS, Wire, owners
from bench.redlock.nodes import MAJORITY, NODES, wires
from bench.scenario import Contestant, Place, Sample
from bench.timing import per_operation

BARE = f"{NODES} bare sockets"
BARE_MAJORITY = f"{NODES} bare sockets, {MAJORITY} answers"
NAME = "bare"
TTL = 30.0
GRACE = 60.0
OWNER = b"%032x"
PROPOSAL = b"%016d"
"""Microseconds since 1970 have this many digits until the year 2286."""

ACCEPTED = 1
FREED = 1


def bare(name: str, address: Address, times: Times, enough: int = NODES) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        url = address(place)
        ready_nodes(url)
        with wires(url) as nodes:
            pair = pair_on(nodes, enough)
            yield lambda: per_operation(pair, place.size(*times))

    return Contestant(name, opened, NEEDS)


def ready_nodes(url: str) -> None:
    """A client of Gripfast's tells new nodes that they may vote, and brings the scripts."""
    with gripfast.connect(url) as client, client.lock(NAME):
        pass


def requests(name: str) -> tuple[bytes, bytes]:
    """To take, with gaps for owner, owner, owner and proposal; to give back, with one for the owner."""
    # Not at the top: they want hiredis, and who has none shall still see the list of scenarios.
    from gripfast.core.redlock.nodes import Free, Vote
    from gripfast.stores.redis.protocol import card
    from gripfast.stores.redlock.protocol import Wording

    wording = Wording(GRACE, lambda label: card(label, "bench", 12345))
    owner, proposal = "f" * 32, 10**15
    take = wording.pack(Vote(name, owner, 1, TTL, None, proposal, waits=False), b"")
    give = wording.pack(Free(name, owner), b"")
    return _with_gaps(take, owner, proposal), _with_gaps(give, owner, proposal)


def _with_gaps(packed: bytes, owner: str, proposal: int) -> bytes:
    escaped = packed.replace(b"%", b"%%")
    return escaped.replace(owner.encode(), OWNER).replace(b"%d" % proposal, PROPOSAL)


def pair_on(nodes: Sequence[Wire], enough: int = NODES) -> Callable[[], None]:
    """A function that takes and gives back once, by so many answers each."""
    # A name for each kind: what goes on with a majority leaves the others behind.
    take, give = requests(f"lock:{NAME}:{enough}")
    ask = asking(nodes, enough)
    owner_id, clock = owners(), time.time_ns

    def pair() -> None:
        owner = owner_id()
        if ask(take % (owner, owner, owner, clock() // 1000)) != [ACCEPTED] * enough:
            raise RuntimeError("the bare lock was not free")
        if ask(give % owner) != [FREED] * enough:
            raise RuntimeError("the bare lock was lost")

    return pair


def asking(nodes: Sequence[Wire], enough: int) -> Callable[[bytes], list[object]]:
    """A function that sends a request to all, and gives the first so many answers; later ones are read and dropped."""
    poll = select.poll()
    for node in nodes:
        poll.register(node.socket, select.POLLIN)
    sends = [node.socket.send for node in nodes]
    ready = poll.poll
    by_number = {node.socket.fileno(): (node.socket.recv, node.reader.feed, node.reader.gets) for node in nodes}
    owed = dict.fromkeys(by_number, 0)

    def ask(request: bytes) -> list[object]:
        for send in sends:
            send(request)
        for number in owed:
            owed[number] += 1
        answers: list[object] = []
        while len(answers) < enough:
            for number, _ in ready():
                receive, feed, reply = by_number[number]
                feed(receive(4096))
                while (answer := reply()) is not False:
                    owed[number] -= 1
                    if not owed[number]:
                        answers.append(answer)
        return answers[:enough]

    return ask
