"""What goes wrong, by name: when it begins, what it does, and how it is over.

Declared faults are those under which exclusion may break (and for a forgetful node with a clock behind, tokens): they
note `forgot` or `jumped`, which tells the checkers so. None of the others may break anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.sim.history import ANY, TOKENS, WORLD
from holdfast.sim.network import RESEND, Connection, Trouble
from holdfast.sim.plan import WITNESS, Fault
from holdfast.sim.processes import Process
from holdfast.sim.redis.node import LOADING
from holdfast.sim.stage import Stage

Happen = Callable[[Stage, Fault], None]


class Kind(NamedTuple):
    happen: Happen
    target: Literal["process", "actor", "node", "lock"]
    is_declared: bool = False
    is_out_of_reach: bool = False
    """While it lasts, somebody can't reach the server."""


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


# The network --------------------------------------------------------------------------------------------------------

SLOWEST = 3.0
"""Times the time-out of a request: messages may take longer than anybody waits."""


def _slow(stage: Stage, fault: Fault) -> None:
    process = stage.processes[fault.target]
    paths = stage.network.paths(process)
    by = SLOWEST * stage.plan.request_timeout * fault.size
    for path in paths:
        path.slow_by += by

    def over() -> None:
        for path in paths:
            path.slow_by -= by

    _begin(stage, fault, over)


def _cut(there: bool, back: bool) -> Happen:
    def cut(stage: Stage, fault: Fault) -> None:
        for path, is_cut in zip(stage.network.paths(stage.processes[fault.target]), (there, back), strict=True):
            if is_cut:
                path.cut_until = max(path.cut_until, stage.world.now + fault.lasts)
        stage.fault(fault.kind, fault.target, lasts=fault.lasts + RESEND)

    return cut


def _to_connections(do: Callable[[Stage, Connection], None]) -> Happen:
    """To all that a process has, if it has any."""

    def happen(stage: Stage, fault: Fault) -> None:
        connections = stage.network.of(stage.processes[fault.target])
        for connection in connections:
            do(stage, connection)
        if connections:
            stage.fault(fault.kind, fault.target)

    return happen


def _reset(_: Stage, connection: Connection) -> None:
    connection.reset()


def _reset_here(_: Stage, connection: Connection) -> None:
    connection.reset_here()


def _kill(stage: Stage, connection: Connection) -> None:
    stage.node.hung_up(connection)
    connection.hang_up_there()


def _half_open(stage: Stage, connection: Connection) -> None:
    """The node has let go of it, and nobody hears of it."""
    stage.node.hung_up(connection)
    connection.back.is_lost = True


def _armed(on: str) -> Happen:
    """Meets the next message of its kind."""

    def arm(stage: Stage, fault: Fault) -> None:
        process = stage.processes[fault.target]
        fired = partial(stage.fault, fault.kind, fault.target, lasts=fault.lasts)
        stage.network.arm(process, on, Trouble(fault.kind, fault.lasts, fired))

    return arm


# The node -----------------------------------------------------------------------------------------------------------


def _node_pause(stage: Stage, fault: Fault) -> None:
    stage.node.pause()
    _begin(stage, fault, stage.node.go_on)


def _node_crash(stage: Stage, fault: Fault) -> None:
    stage.node.crash()
    _begin(stage, fault, stage.node.restart)


def _scripts_forgotten(stage: Stage, fault: Fault) -> None:
    stage.node.server.forget_scripts()
    stage.fault(fault.kind)


def _loading(stage: Stage, fault: Fault) -> None:
    stage.node.refuse(LOADING)
    _begin(stage, fault, lambda: stage.node.refuse(None))


def _memory_lost(stage: Stage, fault: Fault) -> None:
    """It comes back empty."""
    stage.node.crash()
    stage.node.recall(None)
    _forgot(stage)
    _begin(stage, fault, stage.node.restart)


def _stale_replica(stage: Stage, fault: Fault) -> None:
    """A replica takes over that does not know the last moments, with a clock of its own."""
    memory = stage.node.memory()
    behind = 2.0 * fault.size - 1.0

    def take_over() -> None:
        stage.node.crash()
        stage.node.recall(memory)
        stage.node.jump(-behind)
        stage.put_back += max(0.0, behind)
        _forgot(stage)
        stage.node.restart()

    _begin(stage, fault, take_over)


def _forgot(stage: Stage) -> None:
    """A clock that is behind does not make up for what was forgotten, whichever of the two came first."""
    stage.has_forgotten = True
    stage.note(WORLD, ANY, "forgot", until=stage.world.now, note=TOKENS if stage.put_back > 0.0 else "")


def _node_clock(stage: Stage, fault: Fault) -> None:
    by = (2.0 * fault.size - 1.0) * 2.0 * stage.plan.longest_ttl
    stage.node.jump(by)
    stage.put_back += max(0.0, -by)
    stage.note(WORLD, ANY, "jumped", until=stage.world.now)
    if stage.has_forgotten:
        _forgot(stage)
    stage.fault(fault.kind, note=f"by {by:.6f} s")


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
    process.clock.speed_up(stage.world.now, factor)
    _jumped(stage, fault, process)
    _begin(stage, fault, lambda: process.clock.speed_up(stage.world.now, 1.0 / factor))


def _jumped(stage: Stage, fault: Fault, process: Process) -> None:
    stage.note(f"{process.name}/", ANY, "jumped", until=stage.world.now + fault.lasts)


def _death(with_machine: bool) -> Happen:
    def die(stage: Stage, fault: Fault) -> None:
        stage.fault(fault.kind, fault.target)
        stage.kill(stage.processes[fault.target], with_machine)

    return die


def _close(stage: Stage, fault: Fault) -> None:
    """In the middle of everything."""
    runtime = stage.runtimes[fault.target]
    if not runtime.is_closed:
        stage.fault(fault.kind, fault.target)
        runtime.process.do(stage.close, runtime)


def _cancel(stage: Stage, fault: Fault) -> None:
    actor = stage.actors.get(fault.target)
    if actor is not None and actor.is_busy:
        stage.fault(fault.kind, fault.target)
        actor.process.do(actor.cancel)


def _force_release(stage: Stage, fault: Fault) -> None:
    """An operator does what an operator may."""
    runtimes = (each for each in stage.runtimes.values() if not each.process.is_dead and not each.is_closed)
    runtime = next(runtimes)  # there is always the witness
    process, store = runtime.process, runtime.store
    stage.fault(fault.kind, process.name, fault.target)

    async def force() -> None:
        with suppress(ConfigurationError):  # closed meanwhile
            await store.force_release(fault.target)

    process.do(lambda: process.start(f"{process.name}/operator", force()))


# --------------------------------------------------------------------------------------------------------------------


def _begin(stage: Stage, fault: Fault, over: Callable[[], object]) -> None:
    stage.fault(fault.kind, fault.target, lasts=fault.lasts)
    stage.world.at(stage.world.now + fault.lasts, over)


KINDS: dict[str, Kind] = {
    "slow network": Kind(_slow, "process", is_out_of_reach=True),
    "cut": Kind(_cut(True, True), "process", is_out_of_reach=True),
    "cut there": Kind(_cut(True, False), "process", is_out_of_reach=True),
    "cut back": Kind(_cut(False, True), "process", is_out_of_reach=True),
    "reset": Kind(_to_connections(_reset), "process"),
    "reset at one end": Kind(_to_connections(_reset_here), "process"),
    "lost request": Kind(_armed("request"), "process"),
    "duplicated request": Kind(_armed("request"), "process"),
    "lost reply": Kind(_armed("reply"), "process"),
    "reset in a reply": Kind(_armed("reply"), "process"),
    "lost push": Kind(_armed("push"), "process"),
    "late request": Kind(_armed("request"), "process", is_out_of_reach=True),
    "late reply": Kind(_armed("reply"), "process", is_out_of_reach=True),
    "late push": Kind(_armed("push"), "process", is_out_of_reach=True),
    "connections killed": Kind(_to_connections(_kill), "process"),
    "connections half open": Kind(_to_connections(_half_open), "process"),
    "process paused": Kind(_process_pause, "process"),
    "process killed": Kind(_death(False), "process"),
    "machine gone": Kind(_death(True), "process"),
    "client closed": Kind(_close, "process"),
    "task cancelled": Kind(_cancel, "actor"),
    "node paused": Kind(_node_pause, "node", is_out_of_reach=True),
    "node crashed": Kind(_node_crash, "node", is_out_of_reach=True),
    "node loading": Kind(_loading, "node", is_out_of_reach=True),
    "scripts forgotten": Kind(_scripts_forgotten, "node"),
    "memory lost": Kind(_memory_lost, "node", is_declared=True, is_out_of_reach=True),
    "stale replica": Kind(_stale_replica, "node", is_declared=True),
    "node clock jumped": Kind(_node_clock, "node", is_declared=True),
    "machine suspended unseen": Kind(_suspension, "process", is_declared=True),
    "clock rate off": Kind(_wrong_rate, "process", is_declared=True),
    "force release": Kind(_force_release, "lock", is_declared=True),
}
