"""The figures of `gripfast verify`, and what it draws of a long history: on histories that are written by hand."""

from typing import Any

from gripfast_lab.sim.attempts import attempts_of
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import ANY, Event
from gripfast_lab.verify.figures import Told, figures, passed_over, percentiles, unobserved
from gripfast_lab.verify.picture import excerpt, gravest_first, story_of_violation


def told(kind: str, who: str = "w0001", token: int | None = None, **more: Any) -> Told:
    return Told(
        kind, who, "lock-a", token, *({"waited": 0.0, "margin": 0.0, "reason": None, "request": None} | more).values()
    )


def held(who: str, asked: float, granted: float, until: float, token: int, name: str = "lock-a") -> list[Event]:
    return [
        Event(asked, who, name, "asked", until=asked + 9, ttl=5.0, patience=asked + 9),
        Event(granted, who, name, "granted", token=token, until=granted + 4),
        Event(until, who, name, "releasing"),
        Event(until, who, name, "released"),
    ]


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles(range(1, 101)) == {"p50": 50, "p99": 99, "max": 100}
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0, "max": 3.0}
    assert percentiles([]) == {"p50": 0.0, "p99": 0.0, "max": 0.0}


def test_figures_count_what_observers_were_told() -> None:
    events = [told("granted", token=1, waited=0.2), told("renewed", margin=0.5), told("renewed", margin=0.3)]
    events += [told("lost", reason="expired"), told("lost", reason="taken"), told("lost", reason="expired")]
    events += [told("unreachable", request="claim"), told("unreachable", request="renew"), told("refused")]
    found = figures(held("w0001", 1.0, 1.2, 2.0, 1), events)
    assert (found.entries, found.refused, found.unreachable, found.renewals) == (1, 1, 1, 2)
    assert (found.losses, found.least_margin, found.tokens) == ({"expired": 2, "taken": 1}, 0.3, 1)


def test_who_waited_for_longer_and_comes_later_was_passed_over() -> None:
    early, late = held("w0001", 1.0, 3.0, 3.5, 2), held("w0002", 2.0, 2.1, 2.9, 1)
    [(winner, loser)] = passed_over(attempts_of([*early, *late]), [])
    assert (winner.asked.who, loser.asked.who) == ("w0002", "w0001")


def test_who_was_paused_or_came_at_the_same_moment_was_not() -> None:
    early, late = held("w0001", 1.0, 3.0, 3.5, 2), held("w0002", 2.0, 2.1, 2.9, 1)
    paused = Event(1.5, "w0001", ANY, "fault", until=2.5, note="process paused")
    assert not [*passed_over(attempts_of([*early, *late]), [paused])]
    together = held("w0002", 1.05, 2.1, 2.9, 1)
    assert not [*passed_over(attempts_of([*early, *together]), [])]


def test_a_grant_that_no_observer_was_told_of_is_a_violation_unless_its_process_died() -> None:
    history = held("w0001", 1.0, 1.1, 2.0, 1)
    assert not [*unobserved(history, [told("granted", token=1)])]
    assert [each.rule for each in unobserved(history, [told("granted", token=2)])] == ["unobserved"]
    assert not [*unobserved([*history, Event(3.0, "w0001", ANY, "died")], [])]


def test_the_picture_of_a_long_history_shows_those_who_broke_the_rule() -> None:
    before = [event for n in range(100) for event in held(f"w{n:04}", n, n + 0.1, n + 0.9, n + 1)]
    broken = [*held("w0200", 200, 200.1, 203, 200), *held("w0201", 201, 201.1, 202, 201)]
    history = [*before, *broken, Event(200.5, "w0201", ANY, "fault", until=200.9, note="process paused")]
    found = gravest_first(violations(history))
    assert found[0].rule == "overlap"
    assert {event.who for event in excerpt(history, found[0])} == {"w0200", "w0201"}
    story = story_of_violation("Broken", history, found[0])
    assert {lane.name for lane in story.lanes} == {"w0200", "w0201"}
    assert "pause" in [moment.sign for moment in story.moments]
