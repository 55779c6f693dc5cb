"""What `gripfast doctor` finds at the nodes of Redlock: what is wrong with each as a Redis server, and with all of them
together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gripfast.core.redlock.ballot import majority
from gripfast.durations import shown
from gripfast.stores.doctor import CLOCKS_APART, Examination, Finding, Terms, advice, judged, problem, version_in
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis.doctor import Facts, facts_of, gather, judge_mode, judge_server

if TYPE_CHECKING:
    from gripfast.stores.redlock.factory import RedlockFactory

PATIENCE = 1.0
"""Seconds that one node may take to answer: more than it has for a vote."""
DAY = 86400.0
"""Seconds: nodes accept no token that is further ahead of their clock."""

DOWN = problem(
    "redlock-node-down",
    "this node can't be used: {said}",
    why="{left}",
    todo="Start or repair the node. A node that comes back empty votes again after restart_grace",
)
ONE_SERVER = problem(
    "redlock-one-server",
    "{nodes} are one server (they have the same run_id)",
    why="One server votes several times. If it fails, several votes are missing at once. If it forgets its data, a "
    "second holder can get a majority.",
    todo="Use a different server for each node",
)
ONE_MACHINE = advice(
    "redlock-one-machine",
    "{nodes} are on one machine",
    why="They fail together. If most nodes are on one machine, a single Redis server is as reliable and faster.",
    todo="Put each node on a machine of its own",
)
EVEN = advice(
    "redlock-even",
    "there are {count} nodes, and {spare} of them may fail, as with {fewer}",
    why="The last node makes each lock slower, but the locks survive no further failure.",
    todo="Add a node, or remove one; in the URLs of all clients at once",
)
DIFFERENT = advice(
    "redlock-different",
    "the nodes differ: {differences}",
    why="After the same fault some of them still have their locks, and others do not.",
    todo="Give all nodes the same version and settings",
)
LATE_SYNC = problem(
    "redlock-last-writes",
    "this node forgets its last writes in a crash ({kept})",
    why="It comes back with its birth marker, so restart_grace does not apply. It votes at once, and may vote for a "
    "second holder.",
    todo='CONFIG SET appendonly yes and CONFIG SET appendfsync always. Or let it come back empty: CONFIG SET save "" '
    "and CONFIG SET appendonly no. The same in redis.conf",
)
FORGETFUL = advice(
    "redlock-not-durable",
    "most nodes keep nothing on disk",
    why="If they restart at the same time, all leases and all tokens are forgotten. They may restart one "
    "by one, because a node that comes back empty does not vote until restart_grace is over.",
    todo="CONFIG SET appendonly yes and CONFIG SET appendfsync always on every node, and the same in redis.conf, if "
    "tokens have to survive that",
)
REPLICAS = advice(
    "redlock-replicas",
    "this node has {replicas} replica(s)",
    why="If one of them is promoted in its place, it votes without knowing the last grants.",
    todo="Run the nodes without replicas and without failover",
)
CLOCKS = advice(
    "redlock-clocks",
    "the clocks of {first} and {last} differ by {difference}",
    why="Leases are measured in seconds, so they are safe. But one of the clocks is not synchronised. If it is set "
    "instead of adjusted, leases on this node end early or last too long.",
    todo="Run chrony or ntpd on every node and client; they adjust a clock gradually after their start",
)
CLOCK_FAR = problem(
    "redlock-clock-far",
    "the clock of this node is {difference} {direction} this machine's",
    why="Tokens are times. A node refuses those that are more than a day ahead of its clock, and so does not vote; a "
    "node that is a day ahead forgets the tokens of unused names.",
    todo="Set the clock of the node, or of this machine, and run chrony or ntpd on both",
)


class Cluster(NamedTuple):
    """What is known about all nodes together."""

    nodes: Sequence[Facts]
    """Those that answered."""
    down: Mapping[str, str]
    """By node: why."""

    @property
    def size(self) -> int:
        return len(self.nodes) + len(self.down)


def examine(factory: RedlockFactory, terms: Terms) -> Examination:
    cluster = gather_all(factory, terms)
    findings = [*judge(cluster), *(finding for node in cluster.nodes for finding in judge_node(node))]
    return Examination(summary(cluster), findings)


def gather_all(factory: RedlockFactory, terms: Terms) -> Cluster:
    nodes, down = [], {}
    for node in factory._nodes:
        try:
            nodes.append(gather(node.dialer(max(terms.request_timeout, PATIENCE)), facts_of(node, terms, node.where)))
        except LinkDown as error:
            down[node.where] = str(error.fault.error).removeprefix(f"{node.where} ")
    return Cluster(nodes, down)


def summary(cluster: Cluster) -> str:
    versions = sorted({node.version for node in cluster.nodes})
    return f"{cluster.size} nodes, a majority is {majority(cluster.size)}; {', '.join(versions) or 'none answers'}"


# -- judging -------------------------------------------------------------------------------------------------------


def judge(cluster: Cluster) -> Iterator[Finding]:
    judges = (_judge_down, _judge_count, _judge_servers, _judge_machines, _judge_settings, _judge_disks, _judge_clocks)
    return judged(cluster, judges)


def judge_node(node: Facts) -> Iterator[Finding]:
    yield from judge_mode(node)
    yield from judge_server(node)
    replicas = int(node.number("connected_slaves") or 0)
    if replicas:
        yield REPLICAS(node.where, replicas=replicas)
    if _kept(node) not in (SYNCED, NOTHING, UNKNOWN):
        yield LATE_SYNC(node.where, kept=_kept(node))
    if node.clock is not None and abs(node.clock) > DAY:
        direction = "ahead of" if node.clock > 0 else "behind"
        yield CLOCK_FAR(node.where, difference=shown(abs(node.clock)), direction=direction)


def _judge_down(cluster: Cluster) -> Iterator[Finding]:
    left = _left(len(cluster.nodes) - majority(cluster.size))
    for where, said in cluster.down.items():
        yield DOWN(where, said=said, left=left)


def _left(spare: int) -> str:
    if spare < 0:
        return "No lock can be acquired: a majority of the nodes is needed."
    return f"If {spare + 1} more {'fails' if spare == 0 else 'fail'}, no lock can be acquired."


def _judge_count(cluster: Cluster) -> Iterator[Finding]:
    count = cluster.size
    if count % 2 == 0:
        yield EVEN(count=count, spare=count - majority(count), fewer=count - 1)


def _judge_servers(cluster: Cluster) -> Iterator[Finding]:
    for nodes in _shared(cluster, lambda node: node.info.get("run_id", "")):
        yield ONE_SERVER(nodes=nodes)


def _judge_machines(cluster: Cluster) -> Iterator[Finding]:
    for nodes in _shared(cluster, lambda node: node.host):
        yield ONE_MACHINE(nodes=nodes)


def _shared(cluster: Cluster, what: Callable[[Facts], str]) -> Iterator[str]:
    """Nodes that have it in common."""
    for value, group in itertools.groupby(sorted(cluster.nodes, key=what), what):
        names = [node.where for node in group]
        if value and len(names) > 1:
            yield ", ".join(names)


def _judge_settings(cluster: Cluster) -> Iterator[Finding]:
    about: dict[str, Callable[[Facts], str]] = {
        "version": lambda node: ".".join(map(str, version_in(node.version)[:2])),
        "maxmemory-policy": lambda node: node.info.get("maxmemory_policy", ""),
        "maxmemory": lambda node: node.info.get("maxmemory", ""),
        "on disk": _kept,
    }
    found = {name: sorted({each for node in cluster.nodes if (each := tell(node))}) for name, tell in about.items()}
    differences = [f"{name} ({', '.join(values)})" for name, values in found.items() if len(values) > 1]
    if differences:
        yield DIFFERENT(differences="; ".join(differences))


def _judge_disks(cluster: Cluster) -> Iterator[Finding]:
    if sum(_kept(node) == NOTHING for node in cluster.nodes) >= majority(cluster.size):
        yield FORGETFUL()


def _judge_clocks(cluster: Cluster) -> Iterator[Finding]:
    clocks = sorted((node.clock, node.where) for node in cluster.nodes if node.clock is not None)
    if clocks and clocks[-1][0] - clocks[0][0] > CLOCKS_APART:
        (low, first), (high, last) = clocks[0], clocks[-1]
        yield CLOCKS(first=first, last=last, difference=shown(high - low))


SYNCED, NOTHING, UNKNOWN = "appendfsync always", "nothing", ""


def _kept(node: Facts) -> str:
    config = node.config
    if "appendonly" not in config:
        return UNKNOWN
    if config["appendonly"] == "yes":
        return f"appendfsync {config.get('appendfsync')}"
    return f"snapshots: save {config['save']}" if config.get("save") else NOTHING
