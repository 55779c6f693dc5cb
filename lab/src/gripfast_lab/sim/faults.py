"""What goes wrong, by name: when it begins, what it does, and how it is over.

Declared faults are those under which exclusion may break (and for a forgetful node with a clock behind, tokens): they
note `forgot` or `jumped`, which tells the checkers so. None of the others may break anything. Where there are several
nodes, a fault happens to some of them, and it is kept in mind of whom and what it was in the way.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from gripfast.core.ports import PermitStore, permits_of
from gripfast.errors import ClientClosed
from gripfast_lab.sim import failovers
from gripfast_lab.sim.etcd import faults as etcd
from gripfast_lab.sim.history import ANY, HALF_OPEN, ONLY_TOKENS, TOKENS, WORLD
from gripfast_lab.sim.network import RESEND, Connection, Path, Trouble
from gripfast_lab.sim.plan import WITNESS, Fault
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.reach import EVERYBODY
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.voter import Voter
from gripfast_lab.sim.stage import Stage

Happen = Callable[[Stage, Fault], None]

HOURS_MOST = 22 * 3600.0
DAY = 24 * 3600.0


class Kind(NamedTuple):
    happen: Happen
    target: Literal["process", "actor", "node", "lock", "group", "cluster"]
    is_declared: bool = False
    is_out_of_reach: bool = False
    """While it lasts, somebody can't reach a node."""
    at_nodes: bool = False
    """It happens to some of the nodes, or between them and a process."""
    obstructs: float | None = 0.0
    """For how many seconds longer than it lasts something may be in the way; None: nothing is."""


def happen(stage: Stage, fault: Fault) -> None:
    """Have it happen when its moment has come, if then there is still somebody to meet it."""
    stage.world.at(fault.at, _happen, stage, fault)


def _happen(stage: Stage, fault: Fault) -> None:
    kind = KINDS[fault.kind]
    busy = [actor for actor in stage.actors.values() if not actor.is_over and not actor.process.is_dead]
    if kind.target == "process":
        busy = [actor for actor in busy if actor.process.name == fault.target]
    if any(not actor.name.startswith(WITNESS) for actor in busy):
        kind.happen(stage, fault)


def _nodes(stage: Stage, fault: Fault) -> list[Node]:
    return [stage.nodes[node] for node in fault.nodes] or list(stage.nodes)


def _fired(stage: Stage, fault: Fault, target: str = "", note: str = "", lasts: float = 0.0) -> None:
    kind = KINDS[fault.kind]
    stage.fault(fault.kind, target, note, lasts, fault.nodes)
    if kind.obstructs is not None:
        process = fault.target.partition("/")[0] if kind.target in ("process", "actor") else EVERYBODY
        stage.reach.obstruct(stage.world.now, stage.world.now + lasts + kind.obstructs, process, fault.nodes)


# The network --------------------------------------------------------------------------------------------------------

SLOWEST = 3.0
"""Times the time-out of a request: messages may take longer than anybody waits."""


def _slow(stage: Stage, fault: Fault) -> None:
    paths = _paths(stage, fault)
    by = SLOWEST * stage.plan.request_timeout * fault.size
    for there, back in paths:
        there.slow_by += by
        back.slow_by += by

    def over() -> None:
        for there, back in paths:
            there.slow_by -= by
            back.slow_by -= by

    _begin(stage, fault, over)


def _paths(stage: Stage, fault: Fault) -> list[tuple[Path, Path]]:
    return [stage.network.paths(stage.processes[fault.target], node) for node in _nodes(stage, fault)]


def _cut(there: bool, back: bool) -> Happen:
    def cut(stage: Stage, fault: Fault) -> None:
        for paths in _paths(stage, fault):
            for path, is_cut in zip(paths, (there, back), strict=True):
                if is_cut:
                    path.cut_until = max(path.cut_until, stage.world.now + fault.lasts)
        _fired(stage, fault, fault.target, lasts=fault.lasts + RESEND)

    return cut


def _to_connections(do: Callable[[Connection], None]) -> Happen:
    """To all that a process has, if it has any."""

    def happen(stage: Stage, fault: Fault) -> None:
        nodes = _nodes(stage, fault)
        connections = [each for each in stage.network.of(stage.processes[fault.target]) if each.peer in nodes]
        for connection in connections:
            do(connection)
        if connections:
            _fired(stage, fault, fault.target)

    return happen


def _reset(connection: Connection) -> None:
    connection.reset()


def _reset_here(connection: Connection) -> None:
    connection.reset_here()


def _kill(connection: Connection) -> None:
    connection.peer.hung_up(connection)
    connection.hang_up_there()


def _half_open(connection: Connection) -> None:
    """The node has let go of it, and nobody hears of it."""
    connection.peer.hung_up(connection)
    connection.back.is_lost = True


def _armed(on: str) -> Happen:
    """Meets the next message of its kind, at each of the nodes."""

    def arm(stage: Stage, fault: Fault) -> None:
        for place in fault.nodes or range(len(stage.nodes)):
            at_one = fault._replace(nodes=(place,)) if fault.nodes else fault
            fired = partial(_fired, stage, at_one, fault.target, lasts=fault.lasts)
            trouble = Trouble(fault.kind, fault.lasts, fired)
            stage.network.arm(stage.processes[fault.target], stage.nodes[place], on, trouble)

    return arm


# Nodes --------------------------------------------------------------------------------------------------------------


def _to_nodes(do: Callable[[Node], None], undo: Callable[[Node], None]) -> Happen:
    def happen(stage: Stage, fault: Fault) -> None:
        nodes = _nodes(stage, fault)
        for node in nodes:
            do(node)

        def over() -> None:
            for node in nodes:
                undo(node)

        _begin(stage, fault, over)

    return happen


def _scripts_forgotten(stage: Stage, fault: Fault) -> None:
    for node in _nodes(stage, fault):
        node.server.forget_scripts()
    _fired(stage, fault)


def _memory_lost(stage: Stage, fault: Fault) -> None:
    """It comes back empty."""
    nodes = _nodes(stage, fault)
    for node in nodes:
        node.crash()
        node.recall(None)
    for node in nodes:
        _forgot(stage, node, is_empty=True)

    def restart() -> None:
        for node in nodes:
            node.restart()

    _begin(stage, fault, restart)


def _stale_replica(stage: Stage, fault: Fault) -> None:
    """A replica takes over that does not know the last moments, with a clock of its own."""
    memories = [(node, node.memory()) for node in _nodes(stage, fault)]
    behind = 2.0 * fault.size - 1.0

    def take_over() -> None:
        for node, memory in memories:
            node.crash()
            node.recall(memory)
            node.jump(-behind)
            stage.put_back[stage.nodes.index(node)] += max(0.0, behind)
            _forgot(stage, node, is_empty=False)
            node.restart()

    _begin(stage, fault, take_over)


def _forgot(stage: Stage, node: Node, is_empty: bool) -> None:
    """On one server, a clock that is behind does not make up for what was forgotten, whichever of the two came first.

    One of several that comes back empty does not vote before every lease that it may have forgotten is over: only F is
    gone. Unless that is turned off, or none of them is left that knows better.
    """
    quorum = stage.plan.quorum
    stage.has_forgotten = True
    if quorum is None:
        note = TOKENS if stage.longest_put_back > 0.0 else ""
    elif is_empty and quorum.grace and any(isinstance(each, Voter) and each.is_marked for each in stage.nodes):
        note = ONLY_TOKENS
    else:
        note = TOKENS
    stage.note(WORLD, ANY, "forgot", until=stage.world.now, note=note)
    if quorum is not None and is_empty:
        stage.reach.abstains(stage.world.now, math.inf, stage.nodes.index(node))


def _node_clock(stage: Stage, fault: Fault) -> None:
    by = (2.0 * fault.size - 1.0) * 2.0 * stage.plan.longest_ttl
    for node in _nodes(stage, fault):
        _jump(stage, node, by)
    if stage.has_forgotten and stage.plan.quorum is None:
        _forgot(stage, stage.nodes[0], is_empty=False)
    _fired(stage, fault, note=f"by {by:.6f} s")


def _node_clock_far_off(stage: Stage, fault: Fault) -> None:
    """By hours, but no more than a day in all. Only some go back, since what they keep, they keep for so long."""
    fault = fault._replace(nodes=fault.nodes[:1])
    place = fault.nodes[0]
    by = (2.0 * fault.size - 1.0) * HOURS_MOST
    may_go_back = sum(1 for each in stage.put_back if each > 0.0) < len(stage.nodes) - stage.needed
    if stage.has_gone_far.setdefault(place, False) or (by < 0.0 and not may_go_back):
        return
    stage.has_gone_far[place] = True
    _jump(stage, stage.nodes[place], by)
    _fired(stage, fault, note=f"by {by:.6f} s")


def _jump(stage: Stage, node: Node, by: float) -> None:
    node.jump(by)
    stage.put_back[stage.nodes.index(node)] += max(0.0, -by)
    stage.note(WORLD, ANY, "jumped", until=stage.world.now)


def _wall_clock(stage: Stage, fault: Fault) -> None:
    """That of a client's machine, on which nothing may depend."""
    by = (2.0 * fault.size - 1.0) * 2.0 * DAY
    stage.walls[fault.target].jump(stage.world.now, by)
    _fired(stage, fault, fault.target, f"by {by:.6f} s")


# Processes ----------------------------------------------------------------------------------------------------------


def _process_pause(stage: Stage, fault: Fault) -> None:
    process = stage.processes[fault.target]
    process.pause()
    _begin(stage, fault, process.go_on)


def _suspension(stage: Stage, fault: Fault) -> None:
    """Its machine stands still, and its clock does not know."""
    process = stage.processes[fault.target]
    process.pause()
    process.clock.stop(stage.world.now)
    _jumped(stage, fault, process)

    def over() -> None:
        process.clock.go_on(stage.world.now)
        process.go_on()

    _begin(stage, fault, over)


def _wrong_rate(stage: Stage, fault: Fault) -> None:
    process = stage.processes[fault.target]
    factor = 0.7 + 0.6 * fault.size
    process.speed_up(factor)
    _jumped(stage, fault, process)
    _begin(stage, fault, lambda: process.speed_up(1.0 / factor))


def _jumped(stage: Stage, fault: Fault, process: Process) -> None:
    stage.note(f"{process.name}/", ANY, "jumped", until=stage.world.now + fault.lasts)


def _death(with_machine: bool) -> Happen:
    def die(stage: Stage, fault: Fault) -> None:
        _fired(stage, fault, fault.target)
        stage.kill(stage.processes[fault.target], with_machine)

    return die


def _close(stage: Stage, fault: Fault) -> None:
    """In the middle of everything."""
    runtime = stage.runtimes[fault.target]
    if not runtime.is_closed:
        _fired(stage, fault, fault.target)
        runtime.process.do(stage.close, runtime)


def _cancel(stage: Stage, fault: Fault) -> None:
    actor = stage.actors.get(fault.target)
    if actor is not None and actor.is_busy:
        _fired(stage, fault, fault.target)
        actor.process.do(actor.cancel)


def _force_release(stage: Stage, fault: Fault) -> None:
    """An operator does what an operator may."""
    runtimes = (each for each in stage.runtimes.values() if not each.process.is_dead and not each.is_closed)
    runtime = next(runtimes)  # there is always the witness
    process, store = runtime.process, runtime.store
    _fired(stage, fault, process.name, fault.target)

    async def force() -> None:
        with suppress(ClientClosed):  # closed meanwhile
            await store.force_release(fault.target, "an operator wanted it")

    process.do(lambda: process.start(f"{process.name}/operator", force()))


def _force_release_permits(stage: Stage, fault: Fault) -> None:
    """Of all holders, or of the one that has a slot."""
    share = dict(stage.plan.shares)[fault.target]
    has_slots = share.kind == "semaphore" and fault.size < 0.7
    slot = int(fault.size * 10) % share.limit if has_slots else None
    _by_an_operator(stage, fault, lambda store: store.force_release_permits(fault.target, share.kind, slot=slot))


def _resize(stage: Stage, fault: Fault) -> None:
    """Which excuses nothing."""
    if dict(stage.plan.shares)[fault.target].kind == "semaphore":
        _by_an_operator(stage, fault, lambda store: store.resize(fault.target, 1 + int(fault.size * 5)))


def _by_an_operator(stage: Stage, fault: Fault, ask: Callable[[PermitStore], Awaitable[object]]) -> None:
    process, store = stage.runtimes[WITNESS].process, stage.runtimes[WITNESS].store
    _fired(stage, fault, process.name, fault.target)

    async def do() -> None:
        with suppress(ClientClosed):  # closed meanwhile
            await ask(permits_of(store))

    process.do(lambda: process.start(f"{process.name}/operator", do()))


# --------------------------------------------------------------------------------------------------------------------


def _begin(stage: Stage, fault: Fault, over: Callable[[], object]) -> None:
    _fired(stage, fault, fault.target, lasts=fault.lasts)
    stage.world.at(stage.world.now + fault.lasts, over)


_NETWORK = partial(Kind, target="process", at_nodes=True)
_NODES = partial(Kind, target="node", at_nodes=True)

_GROUP = partial(Kind, target="group")
_CLUSTER = partial(Kind, target="cluster")

KINDS: dict[str, Kind] = {
    "slow network": _NETWORK(_slow, is_out_of_reach=True),
    "cut": _NETWORK(_cut(True, True), is_out_of_reach=True),
    "cut there": _NETWORK(_cut(True, False), is_out_of_reach=True),
    "cut back": _NETWORK(_cut(False, True), is_out_of_reach=True),
    "reset": _NETWORK(_to_connections(_reset)),
    "reset at one end": _NETWORK(_to_connections(_reset_here)),
    "lost request": _NETWORK(_armed("request"), obstructs=math.inf),
    "duplicated request": _NETWORK(_armed("request"), obstructs=None),
    "lost reply": _NETWORK(_armed("reply"), obstructs=math.inf),
    "reset in a reply": _NETWORK(_armed("reply")),
    "lost push": _NETWORK(_armed("push"), obstructs=None),
    "late request": _NETWORK(_armed("request"), is_out_of_reach=True),
    "late reply": _NETWORK(_armed("reply"), is_out_of_reach=True),
    "late push": _NETWORK(_armed("push"), is_out_of_reach=True, obstructs=None),
    "connections killed": _NETWORK(_to_connections(_kill)),
    HALF_OPEN: _NETWORK(_to_connections(_half_open), obstructs=math.inf),
    "process paused": Kind(_process_pause, "process"),
    "process killed": Kind(_death(False), "process"),
    "machine gone": Kind(_death(True), "process"),
    "client closed": Kind(_close, "process"),
    "task cancelled": Kind(_cancel, "actor", obstructs=None),
    "node paused": _NODES(_to_nodes(Node.pause, Node.go_on), is_out_of_reach=True),
    "node crashed": _NODES(_to_nodes(Node.crash, Node.restart), is_out_of_reach=True),
    "node loading": _NODES(_to_nodes(Node.load, Node.end_loading), is_out_of_reach=True),
    "scripts forgotten": _NODES(_scripts_forgotten, obstructs=None),
    "memory lost": _NODES(_memory_lost, is_declared=True, is_out_of_reach=True),
    "stale replica": _NODES(_stale_replica, is_declared=True),
    "node clock jumped": _NODES(_node_clock, is_declared=True, obstructs=None),
    "machine suspended unseen": Kind(_suspension, "process", is_declared=True),
    "clock rate off": Kind(_wrong_rate, "process", is_declared=True),
    "force release": Kind(_force_release, "lock", is_declared=True, obstructs=None),
    "permits force-released": Kind(_force_release_permits, "lock", is_declared=True, obstructs=None),
    "resize": Kind(_resize, "lock", obstructs=None),
    "node clock far off": _NODES(_node_clock_far_off, is_declared=True, obstructs=None),
    "wall clock jumped": Kind(_wall_clock, "process", obstructs=None),
    "primary crashed": _GROUP(failovers.crashes, is_out_of_reach=True),
    "primary goes on": _GROUP(failovers.goes_on),
    "primary cut off": _GROUP(failovers.cut_off, is_out_of_reach=True),
    "primary paused": _GROUP(failovers.pauses, is_out_of_reach=True),
    "failed back": _GROUP(failovers.fails_back),
    "replication held": _GROUP(failovers.held),
    "replication slow": _GROUP(failovers.slow),
    "replica crashed": _GROUP(failovers.replica_crashes),
    "backup follows": _GROUP(failovers.backup),
    "primary among strangers": _GROUP(failovers.strangers),
    "member paused": _CLUSTER(etcd.paused),
    "member crashed": _CLUSTER(etcd.crashed),
    "member cut off": _CLUSTER(etcd.cut_off),
    "leader's disk stalled": _CLUSTER(etcd.stalled),
    "leader moved": _CLUSTER(etcd.moved),
    "member applies late": _CLUSTER(etcd.applies_late),
    "proposals late": _CLUSTER(etcd.proposes_late),
    "stale reads": _CLUSTER(etcd.reads_stale),
    "compacted": _CLUSTER(etcd.compacted),
    "backup restored": _CLUSTER(etcd.restored, is_declared=True),
}
OF_PERMITS = ("permits force-released", "resize")
OF_CLUSTERS = tuple(kind for kind, each in KINDS.items() if each.target == "cluster")
OF_GROUPS = tuple(kind for kind, each in KINDS.items() if each.target == "group")
OF_SEVERAL = ("node clock far off", "wall clock jumped")
"""These make sense only where there are several nodes."""
