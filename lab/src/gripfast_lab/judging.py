"""What is wrong with a state: the rules for locks, semaphores, read/write locks, elections and work that is done once.

    exclusion   more is held than may be: two clients hold the lock or lead, as far as they know
    limit       more clients hold a permit, as far as they know, than there are permits
    progress    somebody was refused, and nobody will ever get the lock again, even if nothing else goes wrong: no
                state in which somebody does can be reached without another fault
    permit      somebody was refused although not all permits are held, and all of them will never be held again, even
                if everyone ends and comes again, and nothing else goes wrong
    turn        somebody was refused twice, and can be refused for ever while others come and go: the same state comes
                again, and it gets nothing meanwhile
    never       the work was begun, and nobody will ever do it, even if nothing else goes wrong

Two more are seen when a client enters, in `model`: `token` (it got one that is not larger than one given before) and
`again` (it begins work that was done).

A lock is a semaphore with one permit. A read/write lock has as many permits as its writer takes: all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from gripfast_lab.moves import RETRY
from gripfast_lab.world import MOST_REFUSALS, Act, Client, Protocol, State, Step, Work

MOST_HOPES = 50_000


def held(state: State) -> int:
    """Permits, of those who can do something because of that."""
    return sum(client.n for client in state.clients if not client.is_paused)


def holders(protocol: Protocol, state: State) -> tuple[str, ...]:
    """Those who hold something as far as they know, and can do something because of that."""
    pairs = zip(protocol.clients, state.clients, strict=True)
    return tuple(who for who, client in pairs if client.holds and not client.is_paused)


def waiting(protocol: Protocol, state: State) -> tuple[str, ...]:
    """Also those who hold something and want more."""
    pairs = zip(protocol.clients, state.clients, strict=True)
    return tuple(
        who
        for who, each in pairs
        if not (each.is_dead or each.is_over or each.is_cut) and (each.was_refused or not each.holds)
    )


class Judge:
    def __init__(
        self,
        name: str,
        protocol: Protocol,
        free_steps: Callable[[State], Iterable[Step]],
        is_in_vain: Callable[[State, str], bool],
    ) -> None:
        self._name = name
        self._protocol = protocol
        self._free_steps = free_steps
        self._is_in_vain = is_in_vain
        self._hopeful: dict[str, set[State]] = {"progress": set(), "permit": set(), "never": set()}
        """From which what the rule wants can be reached."""

    def wrong(self, state: State) -> str | None:
        if state.trouble:
            return state.trouble
        if what := self._exclusion(state):
            return what
        if self._protocol.is_once:
            return self._never(state)
        return self._progress(state) or self._permit(state) or self._turn(state)

    # Safety -----------------------------------------------------------------------------------------------------------

    def _exclusion(self, state: State) -> str | None:
        if held(state) <= self._protocol.limit:
            return None
        who = listed(holders(self._protocol, state))
        if self._protocol.limit > 1 and all(client.n <= 1 for client in state.clients):
            return f"limit: {who} hold a permit at the same time, and there are only {self._protocol.limit}"
        return f"exclusion: {who} {self._protocol.words.hold} at the same time"

    # Hope -------------------------------------------------------------------------------------------------------------

    def _progress(self, state: State) -> str | None:
        those = waiting(self._protocol, state)
        if not those or not all(self._is_in_vain(state, who) for who in those):
            return None
        want_more = set(those) & set(holders(self._protocol, state))
        if want_more and set(holders(self._protocol, state)) - want_more:
            return None  # somebody still works: there is more to be seen
        if self._can("progress", state, self._free_steps, _has_gained):
            return None
        if want_more:
            return f"progress: {listed(those)} wait for each other"
        if self._protocol.has_roles:
            return f"progress: {listed(those)} will never get the lock"
        return "progress: nobody will ever get the lock"

    def _permit(self, state: State) -> str | None:
        limit = self._protocol.limit
        there = [client for client in state.clients if not (client.is_dead or client.is_cut)]
        if limit == 1 or held(state) >= limit or len(there) < limit or not any(each.was_refused for each in there):
            return None
        if self._can("permit", state, self._and_again, lambda _, after: held(after) >= limit):
            return None
        return f"permit: a permit is lost, and {limit} clients will never hold one at the same time again"

    def _never(self, state: State) -> str | None:
        pairs = list(zip(self._protocol.clients, state.clients, strict=True))
        there = [(who, client) for who, client in pairs if not (client.is_dead or client.is_cut)]
        if state.work != Work.BEGUN or not there:
            return None
        if not all(client.is_over or self._is_in_vain(state, who) for who, client in there):
            return None
        if self._can("never", state, self._free_steps, lambda _, after: after.work == Work.DONE):
            return None
        return "never: the work was begun, and nobody will ever do it"

    def _can(
        self,
        rule: str,
        state: State,
        steps: Callable[[State], Iterable[Step]],
        is_reached: Callable[[State, State], bool],
    ) -> bool:
        """Whether a step that is wanted can still come, if nothing more goes wrong."""
        calm = state._replace(left=(0,) * len(state.left))
        if calm in self._hopeful[rule]:
            return True
        seen, open_, hopeful = {calm}, deque([calm]), self._hopeful[rule]
        while open_:
            before = open_.popleft()
            for _, after in steps(before):
                if after in hopeful or is_reached(before, after):
                    hopeful |= {before, calm}
                    return True
                if after not in seen:
                    seen.add(after)
                    open_.append(after)
            if len(seen) > MOST_HOPES:
                raise RuntimeError(f"{self._name}: it does not end")
        return False

    def _and_again(self, state: State) -> Iterator[Step]:
        """What can happen; and when all have come to an end, that they come again."""
        yield from self._free_steps(state)
        if all(each.is_dead or each.is_over or each.tries_again or not each.begun for each in state.clients):
            fresh = (each if each.is_dead else Client(ahead=each.ahead, is_cut=each.is_cut) for each in state.clients)
            yield Act("comes again"), state._replace(clients=tuple(fresh))

    # Turns ------------------------------------------------------------------------------------------------------------

    def _turn(self, state: State) -> str | None:
        if not self._protocol.comes_back:
            return None
        for place, client in enumerate(state.clients):
            is_refused_again = client.refusals == MOST_REFUSALS and client.rests == RETRY
            if is_refused_again and self._comes_round(state, place):
                return f"turn: {self._protocol.clients[place]} can wait for ever, while the others come and go"
        return None

    def _comes_round(self, state: State, place: int) -> bool:
        """This state can come again, and the client has got nothing meanwhile."""
        seen, open_ = {state}, [state]
        while open_:
            for _, after in self._free_steps(open_.pop()):
                if after == state:
                    return True
                if after not in seen and not after.clients[place].holds:
                    seen.add(after)
                    open_.append(after)
        return False


def _has_gained(before: State, after: State) -> bool:
    return any(now.n > was.n for was, now in zip(before.clients, after.clients, strict=True))


def listed(names: tuple[str, ...] | list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
