"""A seed of the simulation as a story.

Theory of operation. A history of the simulation has everything that anybody noted; a story has what a reader needs: one
lock, what its callers asked for and were told, the faults, and until when each believed to hold. What repeats that is
left out, such as being told "held" again, and so is what came after the rule was broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gripfast_lab.sim.attempts import CUTS_SHORT, Attempt, attempts_of
from gripfast_lab.sim.checks import RULES, Violation
from gripfast_lab.sim.history import ANY, WORLD, Event, Kind
from gripfast_lab.sim.runner import Stop, Task, collector_off, ran_seed
from gripfast_lab.sim.shrink import shrunk
from gripfast_lab.story import Arrow, Bar, Broken, Lane, Moment, Sign, Story

FAULTS: dict[str, tuple[Sign, Sign | None]] = {
    "slow network": ("slow", None),
    "cut": ("cut", None),
    "cut there": ("cut", None),
    "cut back": ("cut", None),
    "reset": ("cut", None),
    "reset at one end": ("cut", None),
    "lost request": ("lost", None),
    "duplicated request": ("other", None),
    "lost reply": ("lost", None),
    "reset in a reply": ("lost", None),
    "lost push": ("lost", None),
    "late request": ("slow", None),
    "late reply": ("slow", None),
    "late push": ("slow", None),
    "connections killed": ("cut", None),
    "connections half open": ("cut", None),
    "process paused": ("pause", "resume"),
    "client closed": ("other", None),
    "task cancelled": ("other", None),
    "node paused": ("pause", "resume"),
    "node crashed": ("crash", "restart"),
    "node loading": ("crash", "restart"),
    "scripts forgotten": ("other", None),
    "memory lost": ("crash", "restart"),
    "stale replica": ("other", "restart"),
    "node clock jumped": ("jump", None),
    "node clock far off": ("jump", None),
    "machine suspended unseen": ("pause", "resume"),
    "clock rate off": ("jump", None),
    "force release": ("other", None),
    "permits force-released": ("other", None),
    "resize": ("other", None),
    "wall clock jumped": ("jump", None),
    "primary crashed": ("other", None),
    "primary goes on": ("other", None),
    "primary cut off": ("cut", None),
    "primary paused": ("other", None),
    "failed back": ("other", None),
    "replication held": ("slow", None),
    "replication slow": ("slow", None),
    "replica crashed": ("other", None),
    "backup follows": ("other", None),
    "primary among strangers": ("other", None),
    "member paused": ("other", None),
    "member crashed": ("other", None),
    "member cut off": ("cut", None),
    "leader's disk stalled": ("slow", None),
    "leader moved": ("other", None),
    "member applies late": ("slow", None),
    "proposals late": ("slow", None),
    "stale reads": ("other", None),
    "compacted": ("other", None),
    "backup restored": ("other", None),
}
"""How each begins, and how it is over. Deaths are not among them: they are noted for themselves."""
TO_EVERYONE: tuple[Sign, ...] = ("pause", "crash", "jump")
"""A fault of these kinds happens to every lane of a process, or to every node; others are told once."""

SIGHTS: dict[str, tuple[Kind, str]] = {
    "token": ("lowered", "gets a smaller token accepted: {token}, although {note}"),
    "lost update": ("wrote", "writes with token {token} (value read, value written: {note})"),
    "outlived": ("outlived", "counts as the holder, but the engine keeps the lock only until {until:.6f} s"),
    "late": ("held", "counts as the holder"),
    "revived": ("held", "counts as the holder"),
    "misled": ("misled", "gets a wrong answer: {note}"),
    "confirmed": ("confirmed", "gets a renewal accepted while the holder is: {note}"),
    "stolen": ("removed", "has taken the lock away from {note}"),
    "passed": ("handed", "gets the lock; the queue is: {note}"),
    "idle": ("idle", "leaves the lock free; the queue is: {note}"),
    "left behind": ("left", "leaves behind: {note}"),
}
"""What engines and resources saw is told where a rule is about it."""
AT_THE_END = ("stuck", "left behind", "unanswered")
"""These rules are broken by what never happens: their story is told to its end."""
SEEN = 4
REFUSALS = ("refused", "unreachable")


def story_of_seed(seed: int, scenario: str) -> tuple[Story, list[Violation]]:
    """What came of a seed; if it fails, of the smallest plan that fails in the same way."""
    with collector_off(), Task(scenario).staged() as staged:
        outcome = ran_seed(staged, seed)
        if outcome.violations:
            outcome = shrunk(staged, outcome, Stop()).after
    found = list(outcome.violations)
    nodes = [host.name for host in outcome.plan.nodes] if outcome.plan is not None else []
    return story_of(f"seed-{seed}", f"Seed {seed} of {scenario}", outcome.history, found, nodes), found


def story_of(
    name: str, title: str, history: Sequence[Event], violations: Sequence[Violation], nodes: Sequence[str]
) -> Story:
    return _Telling(history, violations[0] if violations else None, nodes).story(name, title)


class _Note(NamedTuple):
    at: float
    rank: int
    """Among those of the same time: faults, ends, requests, grants, and what was seen of them. So whoever follows at
    once overlaps nobody."""
    moment: Moment
    grants: Attempt | None = None
    ends: Attempt | None = None


class _Telling:
    def __init__(self, history: Sequence[Event], violation: Violation | None, nodes: Sequence[str]) -> None:
        self._violation = violation
        self._nodes = nodes
        name = violation.name if violation is not None and violation.name != ANY else None
        self._history = [event for event in history if name is None or event.name in (name, ANY)]
        self._attempts = attempts_of(self._history)
        self._clients = list(dict.fromkeys(attempt.asked.who for attempt in self._attempts))
        what = violation.what if violation is not None else ""
        self._involved = [attempt for attempt in self._attempts if attempt.granted and str(attempt) in what]

    def story(self, name: str, title: str) -> Story:
        notes = self._without_repetition(sorted(self._notes(), key=lambda note: (note.at, note.rank)))
        begins = self._broken_at(notes)
        notes = self._until_broken(notes, begins)
        moments = tuple(note.moment for note in notes)
        lanes = [Lane(client, "client") for client in self._clients if any(each.lane == client for each in moments)]
        lanes += [Lane(node, "node") for node in self._nodes]
        return Story(name, title, tuple(lanes), moments, tuple(self._bars(notes)), self._broken(begins))

    # What is told -----------------------------------------------------------------------------------------------------

    def _notes(self) -> Iterator[_Note]:
        for attempt in self._attempts:
            yield from self._notes_of(attempt)
        seen, text = SIGHTS.get(self._violation.rule if self._violation else "", ("", ""))
        for event in self._history:
            if event.kind == "fault":
                yield from self._fault(event)
            elif event.kind == "died":
                yield from self._deaths(event)
            elif event.kind == seen and self._is_about(event):
                yield self._sight(event, text)

    def _deaths(self, event: Event) -> Iterator[_Note]:
        """Who dies as a holder is told of where its hold ends."""
        ended = [attempt.asked.who for attempt in self._attempts if event in attempt.told and attempt.ends == event.at]
        for lane in self._clients:
            if lane.startswith(event.who) and lane not in ended:
                yield _note(0, event.at, lane, "crash", f"{lane} dies", "dies")

    def _notes_of(self, attempt: Attempt) -> Iterator[_Note]:
        asked, who, granted = attempt.asked, attempt.asked.who, attempt.granted
        yield _note(2, asked.at, who, "ask", f"{who} requests {asked.name!r} for {asked.ttl:g} s", "requests")
        if granted is not None:
            text = f"{who} is granted {asked.name!r} with token {granted.token}"
            note = _note(3, granted.at, who, "enter", text, "granted", self._arrows(granted))
            yield note._replace(grants=attempt)
            if attempt.starts < attempt.ends:
                yield self._end_of(attempt)._replace(ends=attempt)
        elif (closed := attempt.closed_by) is not None and closed.kind != "died":
            sign: Sign = "refused" if closed.kind in REFUSALS else "other"
            yield _note(1, closed.at, who, sign, _with_note(f"{who}: {closed.kind}", closed.note), closed.kind)

    def _end_of(self, attempt: Attempt) -> _Note:
        """Of what it was entitled to believe."""
        who, ends = attempt.asked.who, attempt.ends
        by = next((event for event in attempt.told if event.at == ends and event.kind in CUTS_SHORT), None)
        if by is None:
            return _note(1, ends, who, "leave", f"the deadline of {who} passes", "deadline")
        if by.kind == "lost":
            return _note(1, ends, who, "leave", _with_note(f"{who} is notified of the loss", by.note), "lost it")
        if by.kind == "died":
            return _note(1, ends, who, "crash", f"{who} dies", "dies")
        return _note(1, ends, who, "leave", f"{who} releases it", "releases")

    def _arrows(self, granted: Event) -> tuple[Arrow, ...]:
        """What is known of its messages: whose token nodes have accepted, or that the one node's word has come."""
        if len(self._nodes) == 1:
            return (Arrow(self._nodes[0], granted.who, "granted"),)
        accepted = (each for each in self._history if each.kind == "accepted" and each.token == granted.token)
        nodes = {event.note for event in accepted if event.at <= granted.at}
        return tuple(Arrow(granted.who, node, "token accepted") for node in self._nodes if node in nodes)

    def _is_about(self, event: Event) -> bool:
        """Whether the violation is about what was seen here; of what was written, all is needed."""
        assert self._violation is not None
        rule, _, what = self._violation
        if event.kind == "held":
            return any(event.who == attempt.asked.who and event.at > attempt.ends for attempt in self._involved)
        is_named = f"{event.at:.6f}" in what or (event.note != "" and event.note in what)
        return is_named or rule == "lost update"

    def _sight(self, event: Event, text: str) -> _Note:
        who = event.who.partition("#")[0]
        lane = who if who in (*self._clients, *self._nodes) else WORLD
        return _note(SEEN, event.at, lane, "other", f"{who} {text.format(**event._asdict())}", event.kind)

    def _fault(self, event: Event) -> Iterator[_Note]:
        kind = max((kind for kind in FAULTS if f"{event.note} ".startswith(f"{kind} ")), key=len, default=None)
        if kind is None:
            return
        begins, over = FAULTS[kind]
        lanes = self._struck(event, kind)
        more = [word for word in event.note.removeprefix(kind).split() if word not in self._nodes]
        what = " ".join([kind, *more])
        lasts = f" for {event.until - event.at:.3g} s" if event.until > event.at else ""
        for lane in lanes if begins in TO_EVERYONE or over else lanes[:1]:
            who = lane if begins in TO_EVERYONE or event.who == WORLD else event.who
            yield _note(0, event.at, lane, begins, f"{who}: {what}{lasts}", kind)
            if over is not None:
                yield _note(0, event.until, lane, over, f"{who}: {kind} is over", "back")

    def _struck(self, event: Event, kind: str) -> list[str]:
        nodes = [node for node in self._nodes if node in event.note.removeprefix(kind).split()]
        if event.who == WORLD:
            return nodes or list(self._nodes) or [WORLD]
        clients = [lane for lane in self._clients if lane == event.who or lane.startswith(f"{event.who}/")]
        return clients or [WORLD]

    # What is left out -------------------------------------------------------------------------------------------------

    def _without_repetition(self, notes: list[_Note]) -> list[_Note]:
        """Whoever is answered before anything else happens has not to be told to have asked; nor is anything told
        twice in a row."""
        kept: list[_Note] = []
        for note in notes:
            if kept and _answers(note.moment, kept[-1].moment):
                kept.pop()
            if not kept or kept[-1].moment.text != note.moment.text:
                kept.append(note)
        return kept

    def _until_broken(self, notes: list[_Note], begins: int | None) -> list[_Note]:
        if begins is None or self._violation is None or self._violation.rule in AT_THE_END:
            return notes
        last = max([notes[begins].at, *(attempt.ends for attempt in self._involved)])
        return [note for note in notes if note.at <= last]

    # What is broken ---------------------------------------------------------------------------------------------------

    def _broken_at(self, notes: list[_Note]) -> int | None:
        """The last moment whose time the violation tells, or what was seen of it, or the last grant that it names."""
        if self._violation is None:
            return None
        what = self._violation.what
        tail = what.partition(": ")[2] if self._involved else what
        told = [place for place, note in enumerate(notes) if f"{note.at:.6f}" in tail]
        seen = [place for place, note in enumerate(notes) if note.rank == SEEN]
        named = [place for place, note in enumerate(notes) if note.grants in self._involved]
        return next(iter(told[-1:] or seen[-1:] or named[-1:]), None)

    def _broken(self, begins: int | None) -> Broken | None:
        if self._violation is None:
            return None
        rule, _, what = self._violation
        lanes = tuple(dict.fromkeys(attempt.asked.who for attempt in self._involved))
        return Broken(rule, f"{RULES.get(rule, '')} Here: {what}".strip(), lanes, begins)

    def _bars(self, notes: list[_Note]) -> Iterator[Bar]:
        ends = {id(note.ends): place for place, note in enumerate(notes) if note.ends is not None}
        for place, note in enumerate(notes):
            attempt = note.grants
            if attempt is not None and attempt.starts < attempt.ends:
                yield Bar(attempt.asked.who, place, ends.get(id(attempt)), attempt.token)


def _note(
    rank: int, at: float, lane: str, sign: Sign, text: str, brief: str = "", arrows: tuple[Arrow, ...] = ()
) -> _Note:
    return _Note(at, rank, Moment(lane, sign, text, brief, at, arrows))


def _answers(moment: Moment, asked: Moment) -> bool:
    return asked.sign == "ask" and moment.lane == asked.lane and moment.sign in ("enter", "refused")


def _with_note(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text
