"""A protocol, some clients that follow it, an engine, and what may go wrong: a model for the explorer.

A step is one request with its answer, a fault, or time that passes. Time passes only when everyone who could act has
acted, except for those who are slow, paused or have not begun yet; so without a fault nobody is late.

What is wrong with a state:

    exclusion   two clients hold the lock, as far as they know
    token       a client got a token that is not larger than one given before
    progress    somebody was refused, and nobody will ever get the lock again, even if nothing else goes wrong: no
                state in which somebody does can be reached without another fault

A client is where its program is: known by the answers it got since its attempt began. Generators can't be copied, so
they are played again with those answers, once for each place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from holdfast.lab.engines.port import Engine
from holdfast.lab.moves import ALL, REFUSED, RETRY, STALL, Ask, Enter, Leave, Look, Move, Outcome, Program, Rest

MOST_HOPES = 50_000
LONG_AGO = 3 * STALL
"""Seconds after which nobody cares how many more there are."""

CRASH, SLOW, PAUSE, CUT, LOST_REPLY, MISS, WRONG_CLOCK = (
    "crash",
    "slow",
    "pause",
    "cut",
    "lost reply",
    "miss",
    "wrong clock",
)
"""What happens to clients; engines have faults of their own."""


@dataclass(frozen=True)
class Protocol:
    attempt: Program
    engine: Engine
    clients: tuple[str, ...] = ("A", "B")
    faults: dict[str, int] = field(default_factory=dict)
    """How often each kind may happen."""
    renewal: Ask | None = None
    """What a watchdog asks in the name of the holder, {} in it; its answer is not looked at."""
    renews_every: int = 10
    tells_time: bool = False
    """Programs look at clocks, so the hour matters."""
    takes_time: bool = False
    """Programs look at how long they have taken."""
    in_step: bool = False
    """All clients act at the same moments; which of them is the first at a node is a matter of where they are."""


class Client(NamedTuple):
    answers: tuple[Any, ...] = ()
    begun: bool = False
    rests: int = 0
    """Seconds."""
    stalls: int = 0
    """Seconds for which it is slow, or paused."""
    is_paused: bool = False
    holds: bool = False
    lasts: int | None = None
    """Seconds until it stops by itself."""
    token: int | None = None
    renews_in: int | None = None
    was_refused: bool = False
    is_over: bool = False
    is_dead: bool = False
    is_cut: bool = False
    ahead: int = 0
    """Seconds that its clock is wrong."""
    spent: int = 0
    """Seconds since its attempt began, if it looks at that."""


class State(NamedTuple):
    now: int
    engine: Any
    clients: tuple[Client, ...]
    left: tuple[int, ...]
    """How often each kind of fault may still happen."""
    tokens: int
    """The largest that was given."""
    trouble: str
    first_at: tuple[int, ...]
    """If all are in step: the client that is first at each node."""


class Act(NamedTuple):
    """What happened in a step, for whoever tells of it."""

    kind: str
    who: str = ""
    ask: Ask | None = None
    reply: Any = None
    unreached: tuple[str, ...] = ()
    """Nodes that the request did not get to."""
    text: str = ""
    seconds: int = 0
    others: tuple[Act, ...] = ()
    """All that happened in the same moment, if clients are in step."""


Step: TypeAlias = tuple[Act, State]


class Lab:
    def __init__(self, name: str, protocol: Protocol) -> None:
        self.name = name
        self.protocol = protocol
        self._engine = protocol.engine
        self._kinds = tuple(protocol.faults)
        self._places: dict[tuple[str, tuple[Any, ...]], Move | Outcome] = {}
        self._hopeful: set[State] = set()

    def starts(self) -> Iterator[State]:
        clients = tuple(Client() for _ in self.protocol.clients)
        first_at: tuple[tuple[int, ...], ...] = ((),)
        if self.protocol.in_step:
            clients = tuple(Client(begun=True) for _ in clients)
            first_at = tuple(product(range(len(clients)), repeat=len(self._engine.nodes)))
        for each in first_at:
            yield State(0, self._engine.start(), clients, tuple(self.protocol.faults.values()), 0, "", each)

    def steps(self, state: State) -> Iterator[Step]:
        if state.trouble:
            return
        yield from self._faults(state)  # first: of two paths of one length, that with the earlier fault is found
        yield from self._free_steps(state)

    def wrong(self, state: State) -> str | None:
        if state.trouble:
            return state.trouble
        holders = self.holders(state)
        if len(holders) > 1:
            return f"exclusion: {' and '.join(holders)} hold the lock at the same time"
        waiting = [
            client
            for client in state.clients
            if not (client.is_dead or client.is_over or client.is_cut or client.holds)
        ]
        if waiting and all(client.was_refused for client in waiting) and not self._has_hope(state):
            return "progress: nobody will ever get the lock again"
        return None

    def holders(self, state: State) -> tuple[str, ...]:
        """Those who hold it as far as they know, and can do something because of that."""
        pairs = zip(self.protocol.clients, state.clients, strict=True)
        return tuple(who for who, client in pairs if client.holds and not client.is_paused)

    def tell(self, act: Act) -> str:
        return act.text or f"{act.who} {act.kind} {act.ask or act.seconds or ''}"

    # What happens by itself -------------------------------------------------------------------------------------------

    def _free_steps(self, state: State) -> Iterator[Step]:
        if self.protocol.in_step:
            yield from self._together(state)
            return
        is_busy = False
        for place, client in enumerate(state.clients):
            for step in self._moves(state, place, client):
                is_busy = is_busy or client.begun
                yield step
        for happening in self._engine.happenings(state.engine):
            if not happening.fault:
                act = Act("happens", happening.where, text=happening.text)
                yield act, state._replace(engine=happening.state)
        if not is_busy:
            yield from self._passing(state)

    def _moves(self, state: State, place: int, client: Client) -> Iterator[Step]:
        if client.is_dead or client.is_paused:
            return
        if client.renews_in == 0:
            yield self._renewed(state, place, client)
        if client.is_over or client.rests or client.stalls:
            return
        client = self._looked(state, place, client)
        move = self._at(place, client.answers)
        if isinstance(move, Ask):
            yield from self._asked(state, place, client, move)

    def _asked(self, state: State, place: int, client: Client, ask: Ask) -> Iterator[Step]:
        who = self.protocol.clients[place]
        if client.is_cut:
            act = Act("asks", who, ask, unreached=self._engine.asked(state.engine, ask))
            yield act, self._goes_on(state, place, client, None)
            return
        for missing in ("", *(self._engine.nodes if ask.at == ALL and self._may(state, MISS) else ())):
            answer = self._engine.ask(state.engine, who, ask, missing)
            if answer is None:
                return
            left = self._without(state, MISS) if missing else state.left
            asked = state._replace(engine=answer.state, left=left)
            act = Act("asks", who, ask, answer.reply, answer.unreached, seconds=answer.takes)
            yield act, self._goes_on(asked, place, client._replace(stalls=answer.takes), answer.reply)
            if not missing and self._may(state, LOST_REPLY):
                lost = asked._replace(left=self._without(state, LOST_REPLY))
                yield act._replace(kind="asks in vain"), self._goes_on(lost, place, client, None)

    def _renewed(self, state: State, place: int, client: Client) -> Step:
        who, ask = self.protocol.clients[place], self.protocol.renewal
        assert ask is not None
        ask = ask._replace(commands=tuple(each.format(who) for each in ask.commands), shown=ask.shown.format(who))
        again = client._replace(renews_in=self.protocol.renews_every)
        if client.is_cut:
            unreached = self._engine.asked(state.engine, ask)
            return Act("renews", who, ask, unreached=unreached), _with(state, place, again)
        answer = self._engine.ask(state.engine, who, ask)
        assert answer is not None
        return Act("renews", who, ask, answer.reply), _with(state._replace(engine=answer.state), place, again)

    def _together(self, state: State) -> Iterator[Step]:
        """Everyone who can act does, at each node the first of them first. Luck is in how long they rest."""
        acting = [
            (place, client, move)
            for place, client in enumerate(state.clients)
            if not (client.is_over or client.rests or client.stalls)
            and isinstance(move := self._at(place, client.answers), Ask)
        ]
        if not acting:
            yield from self._passing(state)
            return
        engine, replies = state.engine, {place: [None] * len(self._engine.nodes) for place, _, _ in acting}
        for at, node in enumerate(self._engine.nodes):
            for place, _, ask in sorted(acting, key=lambda each: each[0] != state.first_at[at]):
                answer = self._engine.ask(engine, self.protocol.clients[place], ask._replace(at=node))
                assert answer is not None
                engine, replies[place][at] = answer.state, answer.reply
        acts = [Act("asks", self.protocol.clients[place], ask, tuple(replies[place])) for place, _, ask in acting]
        branches = [state._replace(engine=engine)]
        for place, client, _ in acting:
            branches = [each for branch in branches for each in self._lucky(branch, place, client, replies[place])]
        for branch in branches:
            yield Act("together", others=tuple(acts)), branch

    def _lucky(self, state: State, place: int, client: Client, replies: list[Any]) -> Iterator[State]:
        after = self._goes_on(state, place, client, tuple(replies))
        move = self._at(place, after.clients[place].answers)
        for seconds in move.seconds if isinstance(move, Rest) else (after.clients[place].rests,):
            yield _with(after, place, after.clients[place]._replace(rests=seconds))

    def _passing(self, state: State) -> Iterator[Step]:
        silent = self._silent(state)
        moments = [self._engine.next(state.engine, silent)]
        for client in state.clients:
            if not client.is_dead:
                renews_in = None if client.is_paused else client.renews_in
                moments += [client.stalls or client.rests, client.lasts, renews_in]
        seconds = min((each for each in moments if each), default=0)
        if seconds:
            yield Act("passes", seconds=seconds), self._later(state, seconds, silent)

    def _later(self, state: State, seconds: int, silent: frozenset[str]) -> State:
        engine = self._engine.passes(state.engine, seconds, silent)
        now = state.now + seconds if self.protocol.tells_time else 0
        after = state._replace(now=now, engine=engine)
        for place, client in enumerate(state.clients):
            if not client.is_dead:
                after = self._aged(after, place, client, seconds)
        return after

    def _aged(self, state: State, place: int, client: Client, seconds: int) -> State:
        stalls, rests = max(0, client.stalls - seconds), client.rests if client.stalls else client.rests - seconds
        rests = max(0, rests)
        lasts, renews_in = client.lasts, client.renews_in
        if lasts is not None:
            lasts = max(0, lasts - seconds)
        if renews_in is not None and not client.is_paused:
            renews_in = max(0, renews_in - seconds)
        spent = min(client.spent + seconds, LONG_AGO) if self.protocol.takes_time and client.answers else 0
        older = client._replace(stalls=stalls, rests=rests, lasts=lasts, renews_in=renews_in, spent=spent)
        if lasts == 0:
            older = older._replace(holds=False, lasts=None, token=None)
        if not stalls:
            older = older._replace(is_paused=False)
        state = _with(state, place, older)
        is_rested = client.rests and not rests
        return self._goes_on(state, place, older, None) if is_rested and client.answers else state

    def _silent(self, state: State) -> frozenset[str]:
        return frozenset(
            who
            for who, client in zip(self.protocol.clients, state.clients, strict=True)
            if client.is_dead or client.is_paused or client.is_cut
        )

    # What a client does on its own ------------------------------------------------------------------------------------

    def _at(self, place: int, answers: tuple[Any, ...]) -> Move | Outcome:
        """Where its program is."""
        who = self.protocol.clients[place]
        key = who, answers
        if key not in self._places:
            program = self.protocol.attempt(who)
            try:
                move = next(program)
                for answer in answers:
                    move = program.send(answer)
                self._places[key] = move
            except StopIteration as end:
                self._places[key] = end.value
        return self._places[key]

    def _goes_on(self, state: State, place: int, client: Client, answer: Any) -> State:
        """To its next request or rest: all that it does without anybody else happens at once."""
        client = client._replace(answers=(*client.answers, answer), begun=True)
        while True:
            move = self._at(place, client.answers)
            if isinstance(move, Enter):
                state, client = self._entered(state, place, client, move)
            elif isinstance(move, Leave):
                client = client._replace(holds=False, lasts=None, token=None, renews_in=None)
            elif isinstance(move, Look):
                client = self._looked(state, place, client)
                continue
            elif isinstance(move, Rest):
                client = client._replace(rests=move.seconds[0])
                break
            else:
                client = self._ended(client, move) if isinstance(move, Outcome) else client
                break
            client = client._replace(answers=(*client.answers, None))
        return _with(state, place, client)

    def _looked(self, state: State, place: int, client: Client) -> Client:
        while isinstance(move := self._at(place, client.answers), Look):
            seen = state.now + client.ahead if move.at == "clock" else client.spent
            client = client._replace(answers=(*client.answers, seen))
        return client

    def _entered(self, state: State, place: int, client: Client, move: Enter) -> tuple[State, Client]:
        who, token = self.protocol.clients[place], move.token
        if token is not None:
            if token <= state.tokens:
                trouble = f"token: {who} got {token}, and {state.tokens} was given before"
                state = state._replace(trouble=trouble)
            state = state._replace(tokens=max(token, state.tokens))
        renews_in = self.protocol.renews_every if self.protocol.renewal else None
        return state, client._replace(holds=True, lasts=move.lasts, token=token, renews_in=renews_in, was_refused=False)

    def _ended(self, client: Client, outcome: Outcome) -> Client:
        if outcome is REFUSED:
            return client._replace(
                answers=(), rests=RETRY, was_refused=True, holds=False, token=None, renews_in=None, spent=0
            )
        return client._replace(is_over=True, holds=False, token=None, renews_in=None, spent=0)

    # What goes wrong --------------------------------------------------------------------------------------------------

    def _faults(self, state: State) -> Iterator[Step]:
        for kind in self._kinds:
            if self._may(state, kind):
                spent = self._spent(state, kind)
                for place, client in enumerate(spent.clients):
                    # A clock that jumps later breaks nothing that one which is wrong from the start does not.
                    is_about = client.begun != (kind == WRONG_CLOCK)
                    if is_about and not client.is_dead and not client.is_over and not client.stalls:
                        yield from self._fault(spent, place, client, kind)
        for happening in self._engine.happenings(state.engine):
            if happening.fault and self._may(state, happening.fault):
                act = Act(happening.fault, happening.where, text=happening.text)
                yield act, self._spent(state, happening.fault)._replace(engine=happening.state)

    def _fault(self, state: State, place: int, client: Client, kind: str) -> Iterator[Step]:
        who = self.protocol.clients[place]
        if kind == CRASH:
            dead = Client(begun=True, is_dead=True)
            engine = self._engine.closed(state.engine, who)
            yield Act(CRASH, who), _with(state._replace(engine=engine), place, dead)
        elif kind in (SLOW, PAUSE):
            yield (
                Act(kind, who, seconds=STALL),
                _with(state, place, client._replace(stalls=STALL, is_paused=kind == PAUSE)),
            )
        elif kind == CUT and not client.is_cut:
            yield Act(CUT, who), _with(state, place, client._replace(is_cut=True))
        elif kind == WRONG_CLOCK:
            yield Act(WRONG_CLOCK, who, seconds=STALL), _with(state, place, client._replace(ahead=STALL))

    def _may(self, state: State, kind: str) -> bool:
        return kind in self._kinds and state.left[self._kinds.index(kind)] > 0

    def _spent(self, state: State, kind: str) -> State:
        """Refusals before a fault say nothing about what the fault has done."""
        clients = tuple(client._replace(was_refused=False) for client in state.clients)
        return state._replace(left=self._without(state, kind), clients=clients)

    def _without(self, state: State, kind: str) -> tuple[int, ...]:
        return tuple(left - (each == kind) for each, left in zip(self._kinds, state.left, strict=True))

    # Hope -------------------------------------------------------------------------------------------------------------

    def _has_hope(self, state: State) -> bool:
        """Somebody can still get the lock, if nothing more goes wrong."""
        calm = state._replace(left=(0,) * len(state.left))
        seen, open_ = {calm}, [calm]
        while open_:
            before = open_.pop()
            if before in self._hopeful:
                break
            for _, after in self._free_steps(before):
                if _has_new_holder(before, after):
                    self._hopeful |= {state, calm}
                    return True
                if after not in seen:
                    seen.add(after)
                    open_.append(after)
            if len(seen) > MOST_HOPES:
                raise RuntimeError(f"{self.name}: it does not end")
        else:
            return False
        self._hopeful |= {state, calm}
        return True


def _has_new_holder(before: State, after: State) -> bool:
    return any(now.holds and not was.holds for was, now in zip(before.clients, after.clients, strict=True))


def _with(state: State, place: int, client: Client) -> State:
    return state._replace(clients=(*state.clients[:place], client, *state.clients[place + 1 :]))
