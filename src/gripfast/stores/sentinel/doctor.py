"""What `gripfast doctor` finds at a service that Sentinels watch: what is wrong with its primary as a Redis server, and
with the Sentinels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hiredis import ReplyError

from gripfast.stores.doctor import Examination, Finding, Terms, advice, judged, problem
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis import doctor as redis
from gripfast.stores.redis.protocol import command
from gripfast.stores.sentinel import faults

if TYPE_CHECKING:
    from gripfast.stores.sentinel.dial import Sentinel
    from gripfast.stores.sentinel.factory import SentinelFactory

SENTINELS_LEAST = 3

DOWN = problem(
    "sentinel-down",
    "this Sentinel can't be used: {said}",
    why="With each Sentinel that is missing, there are fewer to agree on a failover, and to tell clients where the "
    "primary is.",
    todo="Start or repair it, or correct its address in the URL",
)
UNKNOWN = problem(
    "sentinel-unknown-service",
    "this Sentinel does not know the service {service}",
    why="It takes part in no failover of this service, and can't tell clients where the primary is.",
    todo="SENTINEL MONITOR {service} host port quorum there, or correct the name in the URL",
)
DISAGREE = problem(
    "sentinel-disagree",
    "the Sentinels name different primaries: {primaries}",
    why="A failover is under way, or some Sentinels are cut off. Clients that ask only Sentinels that are cut off "
    "reach an old primary, which may grant locks that the new one grants, too.",
    todo="Run gripfast doctor again in a minute. If it says the same, check the network between the Sentinels; "
    "SENTINEL RESET makes a Sentinel look again",
)
NO_QUORUM = problem(
    "sentinel-quorum",
    "the Sentinels can't fail over: {said}",
    why="If the primary fails, no replica is promoted, and no lock can be acquired until it is back.",
    todo="Start the missing Sentinels, or lower the quorum: SENTINEL SET {service} quorum …",
)
FEW = advice(
    "sentinel-few",
    "there are {count} Sentinels",
    why="A failover needs a majority of them. With fewer than three, none of them may fail.",
    todo="Run three or five Sentinels, each on a machine of its own",
)
NOT_NAMED = advice(
    "sentinel-not-named",
    "there are {count} Sentinels, and the URL names {named}",
    why="When the named Sentinels are down, clients can't find the primary, though the others could tell them.",
    todo="Name all Sentinels in the URL",
)
NO_REPLICA = advice(
    "sentinel-no-replica",
    "the primary has no replica",
    why="If it fails, there is nothing to fail over to.",
    todo="Start a server with REPLICAOF the primary",
)


class View(NamedTuple):
    """What one Sentinel says."""

    where: str
    trouble: str = ""
    """Why it could not be asked."""
    state: Mapping[str, str] = {}
    """Empty if it does not know the service."""
    quorum: str = ""
    """Why it could not fail over; empty if it could, or does not tell."""

    @property
    def primary(self) -> str:
        return f"{self.state['ip']}:{self.state['port']}" if "ip" in self.state else ""

    def number(self, name: str) -> int:
        return int(self.state.get(name, 0))


class Watch(NamedTuple):
    service: str
    views: Sequence[View]

    @property
    def informed(self) -> list[View]:
        return [view for view in self.views if view.state]

    @property
    def known(self) -> int:
        """How many Sentinels there are."""
        return max((view.number("num-other-sentinels") + 1 for view in self.informed), default=0)


def examine(factory: SentinelFactory, terms: Terms) -> Examination:
    watch = gather(factory, terms)
    findings = [*judge(watch)]
    host = next((view.state["ip"] for view in watch.informed), "")
    facts = redis.Facts("", host, factory.scheme in redis.ENCRYPTED, terms)
    try:
        facts = redis.gather(factory.dialer(terms.request_timeout), facts)
    except LinkDown:  # the scratch lock has told so
        return Examination(f"{len(watch.views)} Sentinels", findings)
    findings += [*redis.judge_server(facts), *redis.judge_alone(facts, factory._failover)]
    return Examination(f"{redis.summary(facts)}; {watch.known} Sentinels", findings)


# -- facts ---------------------------------------------------------------------------------------------------------


def gather(factory: SentinelFactory, terms: Terms) -> Watch:
    service = factory.service
    return Watch(
        service.name, [_view(each, service.name.encode(), terms.request_timeout) for each in service.sentinels]
    )


def _view(sentinel: Sentinel, service: bytes, seconds: float) -> View:
    questions = [command(b"SENTINEL", b"MASTER", service), command(b"SENTINEL", b"CKQUORUM", service)]
    try:
        return read(sentinel.name, sentinel.ask(questions, seconds))
    except Exception as error:  # of any kind, as for a server
        said = str(faults.of_sentinel(sentinel.name, error).error)
        return View(sentinel.name, said.removeprefix(f"{sentinel.name} "))


def read(where: str, replies: Sequence[Any]) -> View:
    state, quorum = replies
    if isinstance(state, ReplyError) and "No such" not in str(state):
        raise state
    fields = [] if isinstance(state, ReplyError) else [each.decode(errors="replace") for each in state]
    is_refused = isinstance(quorum, ReplyError) and "NOQUORUM" in str(quorum)
    said = str(quorum).removeprefix("NOQUORUM ") if is_refused else ""
    return View(where, "", dict(zip(fields[::2], fields[1::2], strict=True)), said)


# -- judging -------------------------------------------------------------------------------------------------------


def judge(watch: Watch) -> Iterator[Finding]:
    return judged(watch, (_judge_each, _judge_together))


def _judge_each(watch: Watch) -> Iterator[Finding]:
    for view in watch.views:
        if view.trouble:
            yield DOWN(view.where, said=view.trouble)
        elif not view.state:
            yield UNKNOWN(view.where, service=watch.service)
        if view.quorum:
            yield NO_QUORUM(view.where, said=view.quorum, service=watch.service)


def _judge_together(watch: Watch) -> Iterator[Finding]:
    primaries = sorted({view.primary for view in watch.informed})
    if len(primaries) > 1:
        yield DISAGREE(primaries=" and ".join(primaries))
    if 0 < watch.known < SENTINELS_LEAST:
        yield FEW(count=watch.known)
    if watch.known > len(watch.views):
        yield NOT_NAMED(count=watch.known, named=len(watch.views))
    if watch.informed and not any(view.number("num-slaves") for view in watch.informed):
        yield NO_REPLICA()
