"""A protocol, some clients that follow it, an engine, and what may go wrong: a model for the explorer.

A step is one request with its answer, a fault, or time that passes. Time passes only when everyone who could act has
acted, except for those who are slow, paused or have not begun yet; so without a fault nobody is late. And it passes
only if somebody waits for something, to the moment at which that comes. A program looks at a clock in the moment of the
answer before, so it may be late after it has looked and not before. All this hides some histories and invents none.

`judging` says what is wrong with a state.

A client is where its program is: known by the answers it got since its attempt began. Generators can't be copied, so
they are played again with those answers, once for each place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from gripfast_lab.engines.port import Happening
from gripfast_lab.judging import Judge
from gripfast_lab.moves import ALL, REFUSED, RETRY, STALL, Ask, Enter, Leave, Look, Move, Outcome, Rest
from gripfast_lab.world import (
    CRASH,
    CUT,
    LOST_REPLY,
    MISS,
    MOST_REFUSALS,
    PAUSE,
    SLOW,
    WRONG_CLOCK,
    Act,
    Client,
    Protocol,
    State,
    Step,
    Work,
)

LONG_AGO = 3 * STALL
"""Seconds after which nobody cares how many more there are."""


class Lab:
    def __init__(self, name: str, protocol: Protocol) -> None:
        self.name = name
        self.protocol = protocol
        self._engine = protocol.engine
        self._kinds = tuple(protocol.faults)
        self._places: dict[tuple[str, tuple[Any, ...]], Move | Outcome] = {}
        self._judge = Judge(name, protocol, self._free_steps, self._is_in_vain)

    def starts(self) -> Iterator[State]:
        clients = tuple(Client() for _ in self.protocol.clients)
        first_at: tuple[tuple[int, ...], ...] = ((),)
        if self.protocol.in_step:
            if not isinstance(self._at(0, ()), Ask):
                raise ValueError("clients that are in step begin by asking")
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
        return self._judge.wrong(state)

    def _is_in_vain(self, state: State, who: str) -> bool:
        """It was refused, or the engine makes it wait."""
        place = self.protocol.clients.index(who)
        client = state.clients[place]
        if client.was_refused or client.rests or client.stalls:
            return client.was_refused
        move = self._at(place, self._looked(state, place, client).answers)
        return isinstance(move, Ask) and self._engine.ask(state.engine, who, move) is None

    def tell(self, act: Act) -> str:
        return act.text or f"{act.who} {act.kind} {act.ask or act.seconds or ''}"

    # What happens by itself -------------------------------------------------------------------------------------------

    def _free_steps(self, state: State) -> Iterator[Step]:
        if self.protocol.in_step:
            yield from self._together(state)
            return
        is_busy = False
        for place, client in enumerate(state.clients):
            if not client.begun and client in state.clients[:place] and not self.protocol.has_roles:
                continue  # those who have not begun are alike: that the first of them begins will do
            for step in self._moves(state, place, client):
                is_busy = is_busy or client.begun
                yield step
        for happening in self._engine.happenings(state.engine):
            if not happening.fault:
                yield _happened(happening), state._replace(engine=happening.state)
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
        else:
            act = Act("begins", self.protocol.clients[place])
            yield from ((act, after) for after in self._goes_on(state, place, client._replace(begun=True)))

    def _asked(self, state: State, place: int, client: Client, ask: Ask) -> Iterator[Step]:
        who = self.protocol.clients[place]
        if client.is_cut:
            act = Act("asks", who, ask, unreached=self._engine.asked(state.engine, who, ask))
            yield from ((act, after) for after in self._answered(state, place, client, self._nothing(ask)))
            return
        for missing in ("", *(self._engine.nodes if ask.at == ALL and self._may(state, MISS) else ())):
            answer = self._engine.ask(state.engine, who, ask, missing)
            if answer is None:
                return
            left = self._without(state, MISS) if missing else state.left
            work = Work.DONE if ask.records and answer.reply else state.work
            asked = state._replace(engine=answer.state, left=left, work=work)
            act = Act("asks", who, ask, answer.reply, answer.unreached, seconds=answer.takes)
            if answer.takes:
                waits = client._replace(begun=True, stalls=answer.takes, answer=(answer.reply,))
                yield act, _with(asked, place, waits)
            else:
                yield from ((act, after) for after in self._answered(asked, place, client, answer.reply))
            if not missing and self._may(state, LOST_REPLY):
                lost = asked._replace(left=self._without(state, LOST_REPLY))
                vain = act._replace(kind="asks in vain")
                yield from ((vain, after) for after in self._answered(lost, place, client, self._nothing(ask)))

    def _nothing(self, ask: Ask) -> Any:
        """What it is answered if it is answered nothing."""
        return (None,) * len(self._engine.nodes) if ask.at == ALL else None

    def _renewed(self, state: State, place: int, client: Client) -> Step:
        who, ask = self.protocol.clients[place], self.protocol.renewal
        assert ask is not None
        ask = ask._replace(commands=tuple(each.format(who) for each in ask.commands), shown=ask.shown.format(who))
        again = client._replace(renews_in=self.protocol.renews_every)
        if client.is_cut:
            unreached = self._engine.asked(state.engine, who, ask)
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
        if any(ask.at != ALL for _, _, ask in acting):
            raise ValueError("clients that are in step ask all nodes")
        engine, replies = state.engine, {place: [None] * len(self._engine.nodes) for place, _, _ in acting}
        for at, node in enumerate(self._engine.nodes):
            for place, _, ask in sorted(acting, key=lambda each: each[0] != state.first_at[at]):
                answer = self._engine.ask(engine, self.protocol.clients[place], ask._replace(at=node))
                assert answer is not None
                engine, replies[place][at] = answer.state, answer.reply
        acts = [Act("asks", self.protocol.clients[place], ask, tuple(replies[place])) for place, _, ask in acting]
        branches = [state._replace(engine=engine)]
        for place, client, _ in acting:
            reply = tuple(replies[place])
            branches = [each for branch in branches for each in self._answered(branch, place, client, reply)]
        for branch in branches:
            yield Act("together", others=tuple(acts)), branch

    def _passing(self, state: State) -> Iterator[Step]:
        silent = self._silent(state)
        moments = [self._engine.next(state.engine, silent)]
        for client in state.clients:
            if not client.is_dead:
                renews_in = None if client.is_paused else client.renews_in
                moments += [client.stalls or client.rests, client.lasts, renews_in]
        seconds = min((each for each in moments if each), default=0)
        if seconds:
            yield from ((Act("passes", seconds=seconds), after) for after in self._later(state, seconds, silent))

    def _later(self, state: State, seconds: int, silent: frozenset[str]) -> list[State]:
        engine = self._engine.passes(state.engine, seconds, silent)
        now = state.now + seconds if self.protocol.tells_time else 0
        branches = [state._replace(now=now, engine=engine)]
        for place, client in enumerate(state.clients):
            if not client.is_dead:
                branches = [each for branch in branches for each in self._aged(branch, place, client, seconds)]
        return branches

    def _aged(self, state: State, place: int, client: Client, seconds: int) -> Iterator[State]:
        stalls, rests = max(0, client.stalls - seconds), client.rests if client.stalls else client.rests - seconds
        rests = max(0, rests)
        lasts, renews_in = client.lasts, client.renews_in
        if lasts is not None:
            lasts = max(0, lasts - seconds)
        if renews_in is not None and not client.is_paused:
            renews_in = max(0, renews_in - seconds)
        is_at_it = client.begun and not client.is_over and not client.tries_again
        spent = min(client.spent + seconds, LONG_AGO) if self.protocol.takes_time and is_at_it else 0
        older = client._replace(stalls=stalls, rests=rests, lasts=lasts, renews_in=renews_in, spent=spent)
        if lasts == 0:
            older = older._replace(n=0, lasts=None, token=None)
        if not stalls:
            older = older._replace(is_paused=False)
        if client.answer and not stalls:
            yield from self._answered(state, place, older._replace(answer=()), *client.answer)
        elif client.rests and not rests and client.tries_again:
            yield from self._goes_on(state, place, older._replace(tries_again=False))
        elif client.rests and not rests:
            yield from self._answered(state, place, older, None)
        else:
            yield _with(state, place, older)

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
                if not isinstance(end.value, Outcome):
                    raise ValueError("a program ends by returning DONE or REFUSED") from None
                self._places[key] = end.value
        return self._places[key]

    def _answered(self, state: State, place: int, client: Client, answer: Any) -> Iterator[State]:
        move = self._at(place, client.answers)
        if isinstance(move, Ask) and move.insists and not answer:
            refused = client._replace(begun=True, rests=RETRY, tries_again=True, was_refused=True)
            return iter((_with(state, place, refused),))
        return self._goes_on(state, place, client._replace(answers=(*client.answers, answer), begun=True))

    def _goes_on(self, state: State, place: int, client: Client) -> Iterator[State]:
        """To its next request or rest: all that it does without anybody else happens at once. How long it rests may be
        a matter of luck."""
        has_entered = False
        while True:
            move = self._at(place, client.answers)
            if isinstance(move, Enter):
                state, client = self._entered(state, place, client, move)
                has_entered = True
            elif isinstance(move, Leave):
                if has_entered:
                    raise ValueError("a hold that takes no time can't be seen: let it rest before it leaves")
                client = client._replace(n=0, lasts=None, token=None, renews_in=None)
                state = state._replace(work=Work.DONE if move.is_done else state.work)
            elif isinstance(move, Look):
                client = self._looked(state, place, client)
                continue
            else:
                break
            client = client._replace(answers=(*client.answers, None))
        if isinstance(move, Rest):
            yield from (_with(state, place, client._replace(rests=seconds)) for seconds in move.seconds)
        else:
            yield _with(state, place, self._ended(client, move) if isinstance(move, Outcome) else client)

    def _looked(self, state: State, place: int, client: Client) -> Client:
        while isinstance(move := self._at(place, client.answers), Look):
            if not (self.protocol.tells_time if move.at == "clock" else self.protocol.takes_time):
                raise ValueError("who looks at a clock needs tells_time, who looks at a stopwatch takes_time")
            seen = state.now + client.ahead if move.at == "clock" else client.spent
            client = client._replace(answers=(*client.answers, seen))
        return client

    def _entered(self, state: State, place: int, client: Client, move: Enter) -> tuple[State, Client]:
        who, token = self.protocol.clients[place], move.token
        if move.lasts is not None and move.lasts <= 0:
            raise ValueError("a hold that is over can't be entered")
        if token is not None:
            if token <= state.tokens:
                trouble = f"token: {who} got {token}, and {state.tokens} was given before"
                state = state._replace(trouble=trouble)
            state = state._replace(tokens=max(token, state.tokens))
        if self.protocol.is_once:
            if state.work == Work.DONE:
                state = state._replace(trouble=f"again: {who} begins the work, and it was done before")
            else:
                state = state._replace(work=Work.BEGUN)
        renews_in = self.protocol.renews_every if self.protocol.renewal else None
        return state, client._replace(n=move.n, lasts=move.lasts, token=token, renews_in=renews_in, was_refused=False)

    def _ended(self, client: Client, outcome: Outcome) -> Client:
        again = Client(begun=True, tries_again=True, is_cut=client.is_cut, ahead=client.ahead)
        if outcome is REFUSED:
            refusals = min(client.refusals + 1, MOST_REFUSALS) if self.protocol.comes_back else 0
            return again._replace(rests=RETRY, was_refused=True, refusals=refusals)
        if self.protocol.comes_back:
            return again._replace(rests=self.protocol.comes_back)
        return client._replace(is_over=True, n=0, token=None, renews_in=None, spent=0)

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
                yield _happened(happening), self._spent(state, happening.fault)._replace(engine=happening.state)

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


def _happened(what: Happening) -> Act:
    return Act(what.fault or "happens", what.where, text=what.text, brief=what.brief, source=what.source)


def _with(state: State, place: int, client: Client) -> State:
    return state._replace(clients=(*state.clients[:place], client, *state.clients[place + 1 :]))
