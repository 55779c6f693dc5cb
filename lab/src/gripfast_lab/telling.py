"""The path that a search found, as a story.

A moment is a step of the path. Steps in which nothing but time passes are told together, and that somebody who was
slow or paused goes on is a moment of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gripfast_lab.judging import held, holders, listed, waiting
from gripfast_lab.model import Lab
from gripfast_lab.moves import ALL, RETRY
from gripfast_lab.sim.explore import Found
from gripfast_lab.story import Arrow, Bar, Broken, Lane, Moment, Sign, Story
from gripfast_lab.world import CRASH, CUT, PAUSE, SLOW, WRONG_CLOCK, Act, Client, State

WORLD = "time"
_SIGNS: dict[str, Sign] = {
    "node down": "crash",
    "failover": "crash",
    "goes on": "other",
    "switch-over": "other",
    "replica cut off": "cut",
    "restart": "restart",
    "clock": "jump",
    "session": "cut",
    "stalled disk": "slow",
}
"""Of what happens to engines."""


def told(lab: Lab, found: Found, title: str) -> Story:
    return _Teller(lab).story(found, title)


class _Teller:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._clients = lab.protocol.clients
        self._engine = lab.protocol.engine
        self._moments: list[Moment] = []
        self._bars: list[Bar] = []
        self._stalled: set[str] = set()
        self._now = 0
        self._passed = 0
        """Seconds since something was told."""

    def story(self, found: Found, title: str) -> Story:
        before = next(iter(self._lab.starts()))
        for act, after in found.trail:
            if act.kind == "passes":
                self._pass(act, before, after)
            else:
                self._stay()
                self._moments.append(self._moment(act, before, after))
                self._stalled |= {act.who} if act.kind in (SLOW, PAUSE) else set()
            self._follow(before, after)
            before = after
        self._stay()
        has_waited = any(moment.sign == "time" for moment in self._moments)
        lanes = [Lane(who, "client") for who in self._clients] + [Lane(node, "node") for node in self._engine.nodes]
        if has_waited:
            lanes.append(Lane(WORLD, "world"))
        broken = self._broken(found.what, before) if found.what else None
        goes_on = self._goes_on(broken, before) if broken else ""
        verbs = self._lab.protocol.words.verbs
        return Story(
            self._lab.name, title, tuple(lanes), tuple(self._moments), tuple(self._bars), broken, goes_on, verbs
        )

    # Moments ----------------------------------------------------------------------------------------------------------

    def _add(self, lane: str, sign: Sign, text: str, brief: str = "", arrows: tuple[Arrow, ...] = ()) -> None:
        self._moments.append(Moment(lane, sign, text, brief, self._now, arrows))

    def _moment(self, act: Act, before: State, after: State) -> Moment:
        if act.others:
            return self._together(act, before, after)
        if act.ask is not None:
            return self._asked(act, before, after)
        texts: dict[str, tuple[Sign, str, str]] = {
            "begins": ("other", f"{act.who} starts", "starts"),
            CRASH: ("crash", f"{act.who} crashes", "crashes"),
            SLOW: ("slow", f"{act.who} becomes slow", "slow"),
            PAUSE: ("pause", f"{act.who} is paused, and all of its threads with it", "paused"),
            CUT: ("cut", f"{act.who} is cut off from the server", "cut off"),
            WRONG_CLOCK: ("jump", f"{act.who}'s clock is {act.seconds} s ahead of the others", f"+{act.seconds} s"),
        }
        sign, text, brief = texts.get(act.kind, (_SIGNS.get(act.kind, "other"), act.text, act.brief))
        arrows = (Arrow(act.source, act.who, act.brief),) if act.source else ()
        return Moment(act.who, sign, text, brief, self._now, arrows)

    def _asked(self, act: Act, before: State, after: State) -> Moment:
        assert act.ask is not None
        sign, outcome = self._outcome(act.who, before, after)
        speaker = f"{act.who}'s watchdog" if act.kind == "renews" else act.who
        ending = f"; {outcome}" if outcome else ""
        nodes = self._engine.asked(before.engine, act.who, act.ask)
        to = " to all" if len(nodes) > 1 else f" to {nodes[0]}" if len(self._engine.nodes) > 1 else ""
        text = f"{speaker}{to}: {act.ask} → {_answered(act, nodes)}{ending}"
        return Moment(act.who, sign, text, str(act.ask), self._now, tuple(self._arrows(act, before)))

    def _arrows(self, act: Act, state: State) -> Iterator[Arrow]:
        ask = act.ask
        assert ask is not None
        nodes = self._engine.asked(state.engine, act.who, ask)
        for place, node in enumerate(nodes):
            reply = act.reply[place] if ask.at == ALL and act.reply is not None else act.reply
            is_lost = node in act.unreached
            is_back_lost = act.kind == "asks in vain"
            text = str(ask) if place == 0 else ""
            back = "" if is_lost or is_back_lost else _shown(reply)
            yield Arrow(act.who, node, text, back, is_lost, is_back_lost)

    def _together(self, act: Act, before: State, after: State) -> Moment:
        parts, arrows = [], list[Arrow]()
        for each in act.others:
            got = [node for node, reply in zip(self._engine.nodes, each.reply, strict=True) if reply]
            parts.append(f"{each.who}: {each.ask} → yes at {', '.join(got) or 'no node'}")
            arrows += self._arrows(each, before)
        refused = [each.who for each in act.others if self._outcome(each.who, before, after)[0] == "refused"]
        text = f"{listed(self._clients)} ask all nodes at the same moment: " + "; ".join(parts)
        ending = f"; {listed(refused)} are refused" if refused else ""
        sign: Sign = "refused" if refused else "ask"
        return Moment(self._clients[0], sign, text + ending, "all at once", self._now, tuple(arrows))

    def _outcome(self, who: str, before: State, after: State) -> tuple[Sign, str]:
        place = self._clients.index(who)
        was, now = before.clients[place], after.clients[place]
        if now.holds and not was.holds:
            has = self._lab.protocol.words.has
            return "enter", f"{who} {has}" + (f", with token {now.token}" if now.token is not None else "")
        if was.holds and not now.holds:
            return "leave", f"{who} is done"
        if now.tries_again and now.was_refused:
            return "refused", f"{who} is refused"
        if self._lab.protocol.is_once and now.is_over and all(bar.lane != who for bar in self._bars):
            return "other", f"{who} believes that it is done"
        return "ask", ""

    def _pass(self, act: Act, before: State, after: State) -> None:
        """If nothing else happens by that, it is told together with the time that passes next."""
        self._now += act.seconds
        self._passed += act.seconds
        pairs = list(zip(self._clients, before.clients, after.clients, strict=True))
        ended = [self._engine.lapsed(before.engine, after.engine)]
        effects = ended + [self._became(act, who, was, now) for who, was, now in pairs]
        resumed = [who for who, was, now in pairs if who in self._stalled and was.stalls and not now.stalls]
        refused = [who for who, was, now in pairs if now.was_refused and now.tries_again and not was.tries_again]
        if any(effects) or resumed or refused:
            self._stay("; ".join(each for each in effects if each))
        for who in resumed:
            self._stalled.remove(who)
            self._add(who, "resume", f"{who} goes on", "goes on")
        for who in refused:
            self._add(who, "refused", f"{who} is refused", "refused")

    def _stay(self, effects: str = "") -> None:
        if self._passed:
            text = f"{self._passed} s pass" + (f"; {effects}" if effects else "")
            self._add(WORLD, "time", text, f"{self._passed} s")
            self._passed = 0

    # What was true in between -----------------------------------------------------------------------------------------

    def _follow(self, before: State, after: State) -> None:
        here = len(self._moments) - 1
        for who, was, now in zip(self._clients, before.clients, after.clients, strict=True):
            if now.holds and not was.holds:
                self._bars.append(Bar(who, here, None, now.token))
            elif was.holds and not now.holds:
                place = max(place for place, bar in enumerate(self._bars) if bar.lane == who)
                begun = self._bars[place]
                self._bars[place] = Bar(who, begun.begins, self._ended_at(here), begun.token)

    def _ended_at(self, here: int) -> int:
        """Time that passes comes before whoever goes on because of it."""
        while self._moments[here].sign == "resume":
            here -= 1
        return here

    def _became(self, act: Act, who: str, was: Client, now: Client) -> str:
        """What time has done to a client."""
        if was.holds and not now.holds:
            is_over = was.lasts is not None and was.lasts <= act.seconds
            return f"{who}'s time is over, and it knows" if is_over else f"{who} is done with its work"
        if now.holds and not was.holds:
            has = self._lab.protocol.words.has
            return f"{who} {has}" if was.answer else f"{who} enters an inner block and sends no request"
        return ""

    def _broken(self, what: str, last: State) -> Broken:
        rule, _, text = what.partition(": ")
        is_name = text.startswith(self._clients)
        text = f"{text if is_name else text[0].upper() + text[1:]}."
        here = len(self._moments) - 1
        return Broken(rule, text, self._lanes_of(rule, what, last), here, here)

    def _lanes_of(self, rule: str, what: str, last: State) -> tuple[str, ...]:
        """Whom it is about."""
        if rule in ("exclusion", "limit"):
            return holders(self._lab.protocol, last)
        if rule == "token":
            return tuple(sorted({bar.lane for bar in self._bars if bar.token is not None and bar.token >= last.tokens}))
        if rule in ("turn", "again"):
            return tuple(who for who in self._clients if f"{rule}: {who} " in what)
        if rule == "never":
            pairs = zip(self._clients, last.clients, strict=True)
            return tuple(who for who, client in pairs if not client.is_dead)
        return waiting(self._lab.protocol, last)

    def _goes_on(self, broken: Broken, last: State) -> str:
        those = waiting(self._lab.protocol, last)
        if broken.rule == "permit":
            return f"Only {held(last)} of {self._lab.protocol.limit} permits can be had, for ever."
        if broken.rule == "turn":
            return (
                f"{listed(broken.lanes)} tries again {RETRY} s after each refusal, and somebody else is always there."
            )
        if broken.rule != "progress":
            return ""
        if not all(last.clients[self._clients.index(who)].was_refused for who in those):
            return f"{listed(those)} {'waits' if len(those) == 1 else 'wait'} for ever."
        verb, verb_to_be = ("tries", "is") if len(those) == 1 else ("try", "are")
        return f"{listed(those)} {verb} again {RETRY} s after each refusal, and {verb_to_be} refused for ever."


def _answered(act: Act, nodes: tuple[str, ...]) -> str:
    if act.kind == "asks in vain":
        return f"{_shown(act.reply)}, but the answer is lost"
    if act.unreached == nodes:
        return f"no answer, for {act.seconds} s" if act.seconds else "no answer"
    if len(nodes) > 1:
        replies = zip(nodes, act.reply, strict=True)
        return ", ".join(f"{node} {'no answer' if node in act.unreached else _shown(reply)}" for node, reply in replies)
    return _shown(act.reply)


def _shown(reply: Any) -> str:
    if reply is None:
        return "nil"
    if isinstance(reply, tuple):
        return ", ".join(_shown(each) for each in reply) or "none"
    return str(reply)
