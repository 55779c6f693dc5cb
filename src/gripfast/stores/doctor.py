"""What `gripfast doctor` finds: a table of checks, and the rules that all engines have in common.

A check is one thing that may be wrong with a deployment. Its texts are a row of docs/doctor.md, with places for values
that were found. A check that is called with these values gives a Finding.

An engine's `doctor.py` has checks and `examine(factory, terms)`. It gathers facts in one place and judges them in
another: what judges is a plain function from facts to findings. A fact that a server does not tell to this user is
unknown, and what is unknown is never judged.

A problem can make two holders, stop a lock from working, or end a lease of a living holder, as things stand. Advice is
for everything else: what happens only after a failure of the server, and what costs time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from gripfast.durations import shown

F = TypeVar("F")

Kind = Literal["problem", "advice"]


class Finding(NamedTuple):
    name: str
    """Of the check."""
    kind: Kind
    where: str
    """Which of several servers; empty if there is one."""
    what: str
    why: str
    todo: str


class Check(NamedTuple):
    name: str
    kind: Kind
    what: str
    why: str
    """Why it matters for a lock."""
    todo: str

    def __call__(self, where: str = "", **values: object) -> Finding:
        what, why, todo = (text.format_map(values) for text in (self.what, self.why, self.todo))
        return Finding(self.name, self.kind, where, what, why, todo)


def problem(name: str, what: str, *, why: str, todo: str) -> Check:
    return Check(name, "problem", what, why, todo)


def advice(name: str, what: str, *, why: str, todo: str) -> Check:
    return Check(name, "advice", what, why, todo)


class Terms(NamedTuple):
    """What the client asks of its store."""

    ttl: float
    request_timeout: float


class Examination(NamedTuple):
    """What an engine's `examine` returns."""

    summary: str
    """What it is, in one line: its version, what it is set up as."""
    findings: Sequence[Finding] = ()


def judged(facts: F, judges: Iterable[Callable[[F], Iterable[Finding]]]) -> Iterator[Finding]:
    for judge in judges:
        yield from judge(facts)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """What is the same at several servers is told once."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(finding._replace(where=""), []).append(finding.where)
    return [finding._replace(where=", ".join(filter(None, where))) for finding, where in places.items()]


def checks_in(module: Any) -> list[Check]:
    """In the order in which they stand there."""
    return [value for value in vars(module).values() if isinstance(value, Check)]


def version_in(text: str) -> tuple[int, ...]:
    """`10.11.6-MariaDB-log` is (10, 11, 6)."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def is_this_machine(host: str) -> bool:
    return host in ("", "localhost", "::1") or host.startswith(("127.", "/"))


# -- what is common to all engines ---------------------------------------------------------------------------------

UNUSABLE = problem(
    "unusable",
    "a lock can't be {done}: {said}",
    why="No program can use the locks of this store with this URL.",
    todo="{advice}",
)
LIMITED = advice(
    "limited",
    "{what} can't be used: {said}",
    why="Locks work, but a program or an operator who needs this gets an error.",
    todo="{advice}. If nobody needs it, leave it as it is",
)
NOT_EXAMINED = advice(
    "not-examined",
    "the settings of the server can't be read: {said}",
    why="So gripfast doctor can't say what else may be wrong with it.",
    todo="{advice}",
)
SLOW = advice(
    "slow",
    "acquiring and releasing takes {tail} now and then (99 of 100 are faster), and the ttl is {ttl}",
    why="A lease is renewed every third of its ttl. There should be time for many attempts until then: a server that "
    "is this slow now may be too slow when it is busy, and then leases are lost.",
    todo="Raise the ttl (?ttl={enough} in the URL), move the clients nearer to the server, or find out what keeps it "
    "busy",
)
TOO_SLOW = problem(
    "too-slow",
    "acquiring and releasing takes {tail} now and then (99 of 100 are faster), and the ttl is {ttl}",
    why="A lease is renewed every third of its ttl. If a renewal takes nearly as long, leases of living holders are "
    "lost.",
    todo="Raise the ttl (?ttl={enough} in the URL), and find out what keeps the server busy",
)
NEAR_TIMEOUT = advice(
    "near-timeout",
    "acquiring and releasing takes {tail} now and then (99 of 100 are faster), and request_timeout is {timeout}",
    why="A request that takes longer than request_timeout counts as failed, though the server may have done it.",
    todo="Raise the time-out: ?request_timeout={enough} in the URL",
)
CLOCKS_DIFFER = advice(
    "clocks-differ",
    "the clock of the server is {difference} {direction} this machine's",
    why="Leases are measured in seconds, not by the time of day, so they are safe. But one of the clocks is not "
    "synchronised. If the server's clock is set instead of adjusted, leases end early or last too long. As long as "
    "the clocks differ, `gripfast ls` shows wrong times.",
    todo="Run chrony or ntpd on both machines; they adjust a clock gradually after their start",
)

SLOW_FACTOR, TOO_SLOW_FACTOR, TIMEOUT_FACTOR = 10, 2, 3
CLOCKS_APART = 2.0
"""Seconds that clocks may differ by."""


class Latency(NamedTuple):
    """Seconds that an acquisition and its release take together."""

    pairs: int
    median: float
    tail: float
    """99 of 100 take less."""
    slowest: float


def latency_of(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds)
    count = len(ordered)
    return Latency(count, ordered[count // 2], ordered[max(0, -(-count * 99 // 100) - 1)], ordered[-1])


def judge_latency(latency: Latency, terms: Terms) -> Iterator[Finding]:
    tail, turn = latency.tail, terms.ttl / 3
    enough = f"{max(1, round(tail * SLOW_FACTOR * 3 + 0.5))}"
    if tail * TOO_SLOW_FACTOR > turn:
        yield TOO_SLOW(tail=precise(tail), ttl=shown(terms.ttl), enough=enough)
    elif tail * SLOW_FACTOR > turn:
        yield SLOW(tail=precise(tail), ttl=shown(terms.ttl), enough=enough)
    if tail * TIMEOUT_FACTOR > terms.request_timeout:
        more = f"{tail * SLOW_FACTOR:.2g}"
        yield NEAR_TIMEOUT(tail=precise(tail), timeout=precise(terms.request_timeout), enough=more)


def judge_clock(difference: float | None) -> Iterator[Finding]:
    """Seconds by which the server is ahead."""
    if difference is not None and abs(difference) > CLOCKS_APART:
        yield CLOCKS_DIFFER(difference=shown(abs(difference)), direction="ahead of" if difference > 0 else "behind")


def precise(seconds: float) -> str:
    """As people compare latencies."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else shown(seconds)
