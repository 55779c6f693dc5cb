"""What `gripfast doctor` finds at a Redis Cluster: what is wrong with each primary as a Redis server, and with the
cluster as a whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hiredis import ReplyError

from gripfast.stores.cluster.topology import Address
from gripfast.stores.doctor import Examination, Finding, Terms, advice, judged, problem
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis import doctor as redis
from gripfast.stores.redis.keys import SLOTS

if TYPE_CHECKING:
    from gripfast.stores.cluster.factory import ClusterFactory
    from gripfast.stores.redis.dial import Dialer

PRIMARIES_LEAST = 3

DOWN = problem(
    "cluster-down",
    "cluster_state is {state}",
    why="The nodes refuse requests: no lock can be acquired or renewed.",
    todo="Look at CLUSTER INFO and CLUSTER NODES, and start nodes that failed; redis-cli --cluster check tells more",
)
SLOTS_MISSING = problem(
    "cluster-slots",
    "{missing} of {all} slots have no node that works",
    why="Locks whose names belong to these slots can't be acquired or renewed. Unless cluster-require-full-coverage is "
    "no, no lock can.",
    todo="Start the nodes that failed, or run redis-cli --cluster fix",
)
FAILED = problem(
    "cluster-node-failed",
    "this node has failed, as the others see it ({flags})",
    why="If it was a primary, a replica is promoted in its place, or its slots are without a node.",
    todo="Start or repair it, or remove it: CLUSTER FORGET",
)
UNREACHED = problem(
    "cluster-node-unreached",
    "this client can't reach this primary: {said}",
    why="Locks in its slots can't be acquired from here, although the cluster works.",
    todo="Check the address that the node announces (cluster-announce-ip, cluster-announce-port), and firewalls",
)
NO_REPLICA = advice(
    "cluster-no-replica",
    "this primary has no replica",
    why="If it fails, its slots are without a node: locks in them can't be acquired or renewed until it is back.",
    todo="Add a replica: redis-cli --cluster add-node … --cluster-slave",
)
FEW_PRIMARIES = advice(
    "cluster-few-primaries",
    "the cluster has {count} primaries",
    why="A replica is promoted only if a majority of the primaries agrees. With fewer than three, none of them may "
    "fail.",
    todo="Use three primaries at least",
)
ONE_SEED = advice(
    "cluster-one-host",
    "the URL names one node",
    why="While that node is down, new clients can't find the others.",
    todo="Name several nodes in the URL: redis+cluster://host:port,host:port",
)
SEED_DOWN = advice(
    "cluster-host-down",
    "this node of the URL can't be used: {said}",
    why="New clients lose time with it, and when the other nodes of the URL are down, they find none.",
    todo="Start or repair the node, or name another one in the URL",
)
MIGRATING = advice(
    "cluster-migrating",
    "slots are being moved from this node",
    why="Requests for locks in these slots take longer meanwhile. If a move was broken off, this lasts until "
    "somebody ends the move.",
    todo="Wait for the end of the resharding, or end it: redis-cli --cluster fix",
)


class Node(NamedTuple):
    """A line of CLUSTER NODES."""

    id: str
    address: Address
    flags: tuple[str, ...]
    primary: str
    """The id of its primary, or a dash."""
    slots: tuple[str, ...]

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags and bool(self.slots)

    @property
    def has_failed(self) -> bool:
        return bool({"fail", "fail?", "noaddr"} & set(self.flags))


class Facts(NamedTuple):
    seeds: int
    down: Mapping[str, str] = {}
    """Nodes of the URL, and why they could not be asked."""
    unreached: Mapping[str, str] = {}
    """Primaries, and why they could not be asked."""
    info: Mapping[str, str] = {}
    nodes: Sequence[Node] = ()
    servers: Sequence[redis.Facts] = ()
    """The primaries that answered."""

    @property
    def primaries(self) -> list[Node]:
        return [node for node in self.nodes if node.is_primary and not node.has_failed]


def examine(factory: ClusterFactory, terms: Terms) -> Examination:
    facts = gather(factory, terms)
    found = [*judge(facts)]
    for server in facts.servers:
        found += [*redis.judge_server(server), *redis.judge_alone(server, factory._failover)]
    return Examination(summary(facts), found)


# -- facts ---------------------------------------------------------------------------------------------------------

_QUESTIONS = (("CLUSTER", "INFO"), ("CLUSTER", "NODES"))


def gather(factory: ClusterFactory, terms: Terms) -> Facts:
    """Raises LinkDown if no node of the URL answers."""
    dialer = functools.partial(factory._dialer, terms.request_timeout)
    down: dict[str, str] = {}
    facts, last = None, None
    for seed in factory._seeds:
        try:
            facts = facts or read(Facts(len(factory._seeds)), redis.ask(dialer(seed), _QUESTIONS), seed)
        except LinkDown as error:
            down[str(seed)], last = _said(error), error
    if facts is None:
        assert last is not None
        raise last
    return _with_servers(facts._replace(down=down), factory._scheme in redis.ENCRYPTED, terms, dialer)


def _with_servers(facts: Facts, encrypted: bool, terms: Terms, dialer: Callable[[Address], Dialer]) -> Facts:
    servers, unreached = [], {}
    for node in facts.primaries:
        where = str(node.address)
        try:
            servers.append(redis.gather(dialer(node.address), redis.Facts(where, node.address.host, encrypted, terms)))
        except LinkDown as error:
            unreached[where] = _said(error)
    return facts._replace(servers=servers, unreached=unreached)


def _said(down: LinkDown) -> str:
    [words] = [*down.fault.error.nodes.values()] or [str(down.fault.error)]
    return words


def read(facts: Facts, replies: Sequence[Any], asked: Address) -> Facts:
    """`asked`: the node that has replied; it may not know its own host."""
    info, nodes = ("" if isinstance(each, ReplyError) else each.decode(errors="replace") for each in replies)
    lines = [line.partition(":") for line in info.splitlines()]
    return facts._replace(
        info={name: value for name, _, value in lines},
        nodes=[_read_node(line.split(), asked) for line in nodes.splitlines() if line],
    )


def _read_node(words: Sequence[str], asked: Address) -> Node:
    id_, place, flags, primary, _, _, _, _, *slots = words
    host, _, port = place.partition("@")[0].rpartition(":")
    return Node(id_, Address(host or asked.host, int(port)), tuple(flags.split(",")), primary, tuple(slots))


def summary(facts: Facts) -> str:
    versions = sorted({server.version for server in facts.servers})
    replicas = sum("slave" in node.flags for node in facts.nodes)
    return f"{' and '.join(versions) or 'Redis'} Cluster, {len(facts.primaries)} primaries, {replicas} replicas"


# -- judging -------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Finding]:
    return judged(facts, (_judge_state, _judge_nodes, _judge_primaries, _judge_seeds))


def _judge_state(facts: Facts) -> Iterator[Finding]:
    state, working = facts.info.get("cluster_state", "ok"), int(facts.info.get("cluster_slots_ok", SLOTS))
    if state != "ok":
        yield DOWN(state=state)
    if working < SLOTS:
        yield SLOTS_MISSING(missing=SLOTS - working, all=SLOTS)


def _judge_nodes(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.has_failed:
            yield FAILED(str(node.address), flags=",".join(node.flags))
        if any("->-" in slot for slot in node.slots):
            yield MIGRATING(str(node.address))


def _judge_primaries(facts: Facts) -> Iterator[Finding]:
    followed = {node.primary for node in facts.nodes if not node.has_failed}
    for node in facts.primaries:
        if node.id not in followed:
            yield NO_REPLICA(str(node.address))
    for where, said in facts.unreached.items():
        yield UNREACHED(where, said=said)
    if 0 < len(facts.primaries) < PRIMARIES_LEAST:
        yield FEW_PRIMARIES(count=len(facts.primaries))


def _judge_seeds(facts: Facts) -> Iterator[Finding]:
    for where, said in facts.down.items():
        yield SEED_DOWN(where, said=said)
    if facts.seeds == 1:
        yield ONE_SEED()
