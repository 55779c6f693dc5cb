"""The quick checks of overlaps and tokens find exactly what comparing everything with everything finds."""

from collections.abc import Iterator
from itertools import permutations

import hypothesis.strategies as st
from hypothesis import given, settings

from gripfast_lab.sim.attempts import Attempt, attempts_of
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from sim.events import asked, event, granted, world

MOMENTS = st.integers(0, 30).map(float)
PROCESSES = ("p/", "q/")


@st.composite
def lives(draw: st.DrawFn, number: int) -> list[Event]:
    """Anything, right or wrong."""
    who = f"{draw(st.sampled_from(PROCESSES))}{number}"
    start, wait, length = draw(MOMENTS), draw(st.integers(0, 8)), draw(st.integers(-1, 8))
    got = start + wait
    return [
        asked(start, who),
        granted(got, who, draw(st.integers(1, 8)), until=got + length),
        event(got + 9, who, "released"),
    ]


@st.composite
def faults(draw: st.DrawFn) -> Event:
    fault = world(draw(MOMENTS), draw(st.sampled_from(["forgot", "jumped"])))
    return fault._replace(
        until=fault.at + draw(st.integers(0, 5)),
        note=draw(st.sampled_from(["", "tokens"])) if fault.kind == "forgot" else "",
        who=draw(st.sampled_from(["world", *PROCESSES])) if fault.kind == "jumped" else "world",
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    attempts = [draw(lives(number)) for number in range(draw(st.integers(2, 6)))]
    return [each for events in attempts for each in events] + draw(st.lists(faults(), max_size=3))


def stands_between(fault: Event, attempt: Attempt, at: float) -> bool:
    concerns = fault.who == "world" or attempt.asked.who.startswith(fault.who)
    return concerns and attempt.asked.at <= fault.until and fault.at <= at


def overlapping(attempts: list[Attempt], faults: list[Event]) -> Iterator[tuple[Attempt, Attempt]]:
    """Every pair in which the first starts before the second, or with it and the first was noted first."""
    new_epochs = [fault for fault in faults if fault.note == "tokens"]
    for first, second in permutations((each for each in attempts if each.starts < each.ends), 2):
        is_of_either = any(stands_between(fault, second, second.starts) for fault in new_epochs)
        older = [first, second] if second.token < first.token or is_of_either else [first]
        is_excused = any(stands_between(fault, each, second.starts) for fault in faults for each in older)
        if order(first) < order(second) and first.ends > second.starts and not is_excused:
            yield first, second


def order(attempt: Attempt) -> tuple[float, int]:
    return attempt.starts, int(attempt.asked.who[2:])


def shrinking(attempts: list[Attempt], faults: list[Event]) -> set[Attempt]:
    """Whoever has a smaller token than one that was granted before it."""
    new_epochs = [fault for fault in faults if fault.note == "tokens"]
    excused = {each for each in attempts for fault in faults if stands_between(fault, each, each.starts)}
    found = set()
    for first, second in permutations(attempts, 2):
        is_surely_before = first.starts < second.asked.at
        is_alone = not {first, second} & excused and all(each.starts < each.ends for each in (first, second))
        if not (is_surely_before or (is_alone and first.starts < second.starts)) or first.token <= second.token:
            continue
        if not any(stands_between(fault, first, second.starts) for fault in new_epochs):
            found.add(second)
    return found


@settings(max_examples=300)
@given(histories())
def test_they_find_what_a_comparison_of_all_pairs_finds(history: list[Event]) -> None:
    attempts, declared = attempts_of(history), [each for each in history if each.who in ("world", *PROCESSES)]
    found = violations(history)
    expected = [f"{first} and {second}" for first, second in overlapping(attempts, declared)]
    assert sorted(each.what for each in found if each.rule == "overlap") == sorted(expected)
    shrunk = {each.what.rpartition(" to ")[0].rpartition(" to ")[2] for each in found if "not grown" in each.what}
    assert shrunk == {str(each).rpartition(" to ")[0] for each in shrinking(attempts, declared)}
