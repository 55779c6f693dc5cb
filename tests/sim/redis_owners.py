"""Random requests of owners for the pair, with Gripfast's own scripts, as production packs them.

Tokens are times, which differ between the two servers. They are compared by their numbers in the order in which they
were first seen, and by whether each was the largest so far.
"""

import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from gripfast.core.ports import Claim, Hold
from gripfast.stores.redis import keys, protocol, scripts
from gripfast.stores.redis.scripts import Script
from sim.redis_pair import About, Pair, contents, shape
from sim.redis_words import weighted

NAMES = ["job", "a}b"]
OWNERS = [b"a", b"b 1 2", b"-\xff\n-", b"f" * 120]
KINDS = [b"token", b"line", b"places", b"broken", b"note"]
CARD = protocol.card("label", "here", 7)
LONG_AGO = b"1"
AHEAD = 4_102_444_800_000_000
"""A token of the year 2100."""


def channel_of(owner: bytes) -> bytes:
    return protocol.new_channel(owner.hex())


def side_keys(name: str) -> list[bytes]:
    return [name.encode(), *[keys.side_key(name.encode(), kind) for kind in KINDS]]


class Tokens:
    """What one server has given, as something that can be compared with what the other one has."""

    def __init__(self) -> None:
        self._seen: dict[int, bytes] = {}

    def read(self, text: bytes) -> bytes:
        """The same text with its times taken out: a token, a fence, a place in the line, a push, or anything else."""
        text = re.sub(rb"^(\d{16})(?:@\d{16})?(?= )", lambda found: self.name(int(found[1])), text)
        text = re.sub(rb" (\d{16})(?= \d+$)", lambda found: b" " + self.name(int(found[1])), text)
        return re.sub(rb"^\d{13}(?= )", b"<seen>", text)

    def name(self, token: int) -> bytes:
        if token not in self._seen:
            largest = token > max(self._seen, default=0)
            self._seen[token] = b"<token %d %b>" % (len(self._seen), b"up" if largest else b"down")
        return self._seen[token]


class Owners:
    """Asks both servers."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._tokens = {pair.real: Tokens(), pair.simulated: Tokens()}

    def ask(self, script: Script, packed: bytes) -> Any:
        def on(side: Any) -> Any:
            reply = side.packed(packed)[0]
            if protocol.forgot_script(reply):
                reply = side.packed(script.in_full(packed))[0]
            return self._comparable(side, reply)

        return self.pair.on_each(on)

    def _comparable(self, side: Any, reply: Any) -> Any:
        tokens = self._tokens[side]
        if isinstance(reply, int) and reply > 1:
            return tokens.name(reply)
        if isinstance(reply, list):
            holder, left, fence, *rest = reply
            return [holder, About(left), fence and tokens.read(fence), *rest]
        return shape((b"",), reply)

    def compare(self) -> None:
        self.pair.on_each(lambda side: [[self._tokens[side].read(each[2]) for each in inbox] for inbox in side.heard()])
        self.pair.on_each(lambda side: self._contents(side))

    def _contents(self, side: Any) -> Any:
        return contents(side, self._tokens[side].read)

    # Requests ---------------------------------------------------------------------------------------------------------

    def claims(self, name: str, owner: bytes, ttl: float, waits: bool) -> None:
        claim = Claim(name, protocol.to_text(owner), ttl, "label", None)
        channel = channel_of(owner) if waits else b""
        self.ask(scripts.CLAIM, protocol.claim(name, claim, CARD, channel))

    def renews(self, name: str, owner: bytes, ttl: float, shortens: bool) -> None:
        self.ask(scripts.RENEW, protocol.renew(name, Hold(name, protocol.to_text(owner), ttl, shortens)))

    def releases(self, name: str, owner: bytes) -> None:
        self.ask(scripts.RELEASE, protocol.release(name, Hold(name, protocol.to_text(owner), 30.0)))

    def the_holder_renews(self, name: str, ttl: float, shortens: bool) -> None:
        self.renews(name, self.pair.do(b"GET", name.encode()) or OWNERS[0], ttl, shortens)

    def the_holder_releases(self, name: str) -> None:
        self.releases(name, self.pair.do(b"GET", name.encode()) or OWNERS[0])

    def asks_why(self, name: str, owner: bytes) -> None:
        self.ask(scripts.WHY, protocol.why(name, Hold(name, protocol.to_text(owner), 30.0)))

    def abandons(self, name: str, owner: bytes) -> None:
        self.ask(scripts.ABANDON, protocol.abandon(name, protocol.to_text(owner)))

    def is_broken(self, name: str, note: str | None) -> None:
        self.ask(scripts.FORCE_RELEASE, protocol.force_release(name, note))

    def asks_why_it_was_broken(self, name: str) -> None:
        self.asks_why(name, self.pair.do(b"GET", side_keys(name)[4]) or OWNERS[0])

    def is_inspected(self, name: str) -> None:
        self.ask(scripts.INSPECT, protocol.inspect(name))

    # What else happens ------------------------------------------------------------------------------------------------

    def listens(self, owner: bytes, number: int, really: bool) -> None:
        self.pair.listens(number, channel_of(owner), really)

    def runs_out(self, name: str, which: int) -> None:
        key = side_keys(name)[which]
        if self.pair.do(b"PEXPIRE", key, b"1"):
            self.pair.waits_for_the_end_of(key)

    def is_not_seen_for_long(self, name: str, owner: bytes) -> None:
        places = side_keys(name)[3]

        def age(side: Any) -> Any:
            if side.many((b"TYPE", places))[0] != b"hash" or not (place := side.many((b"HGET", places, owner))[0]):
                return None
            return side.many((b"HSET", places, owner, LONG_AGO + b" " + place.partition(b" ")[2]))

        self.pair.on_each(age)

    def another_program_takes_it(self, name: str, *options: bytes) -> None:
        self.pair.do(b"SET", name.encode(), b"someone", *options)

    def the_clock_was_ahead(self, name: str, owner: bytes) -> None:
        self.pair.do(b"SET", side_keys(name)[1], b"%d %b\n%b" % (AHEAD, CARD, owner), b"PX", b"90000000")

    def a_key_is_gone(self, name: str, which: int) -> None:
        self.pair.do(b"DEL", side_keys(name)[which])

    def a_key_is_something_else(self, name: str, which: int, owner: bytes) -> None:
        """For two requests; then somebody mends it."""
        key = side_keys(name)[which]
        self.pair.do(b"DEL", key)
        self.pair.do(*((b"HSET", key, b"x", b"y") if which != 3 else (b"SET", key, b"x")))
        self.claims(name, owner, 30.0, True)
        self.releases(name, owner)
        self.compare()
        self.pair.do(b"DEL", key)

    def scripts_are_forgotten(self) -> None:
        self.pair.do(b"SCRIPT", b"FLUSH")


def step(action: Callable[..., None], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(action), st.tuples(*arguments))


names = st.sampled_from([NAMES[0], NAMES[0], NAMES[0], NAMES[1]])
owners = st.sampled_from(OWNERS)
numbers = st.integers(0, 1)
ttls = st.sampled_from([8.0, 30.0, 60.0])
any_key = st.integers(0, len(KINDS))

steps = weighted(
    (8, step(Owners.claims, names, owners, ttls, st.just(True))),
    (2, step(Owners.claims, names, owners, ttls, st.just(False))),
    (8, step(Owners.the_holder_releases, names)),
    (2, step(Owners.the_holder_renews, names, ttls, st.booleans())),
    (1, step(Owners.renews, names, owners, ttls, st.booleans())),
    (1, step(Owners.releases, names, owners)),
    (1, step(Owners.asks_why, names, owners)),
    (1, step(Owners.abandons, names, owners)),
    (2, step(Owners.is_broken, names, st.sampled_from([None, "deploy of v2", "☃\n\0"]))),
    (1, step(Owners.asks_why_it_was_broken, names)),
    (1, step(Owners.is_inspected, names)),
    (3, step(Owners.listens, owners, numbers, st.just(True))),
    (2, step(Owners.listens, owners, numbers, st.just(False))),
    (2, step(Owners.runs_out, names, any_key)),
    (3, step(Owners.is_not_seen_for_long, names, owners)),
    (1, step(Owners.another_program_takes_it, names)),
    (1, step(Owners.another_program_takes_it, names, st.just(b"PX"), st.just(b"60000"))),
    (1, step(Owners.the_clock_was_ahead, names, owners)),
    (1, step(Owners.a_key_is_gone, names, any_key)),
    (1, step(Owners.a_key_is_something_else, names, any_key, owners)),
    (1, step(Owners.scripts_are_forgotten)),
)
sequences = st.lists(steps, min_size=30, max_size=60)


def owners_are_alike(pair: Pair, sequence: list[Any]) -> None:
    both = Owners(pair)
    for owner in OWNERS[:3]:
        both.listens(owner, 0, True)
    for action, arguments in sequence:
        action(both, *arguments)
        both.compare()
