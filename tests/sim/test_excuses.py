"""Declared faults: what each of them excuses, and that it excuses nothing else."""

import pytest

from gripfast_lab.sim.history import Event
from sim.events import asked, event, granted, held, life, lost, over, rules, world, wrote

FORGOT = world(2, "forgot", until=2.5)
JUMPED = world(2, "jumped", until=2.5)
TOKENS = FORGOT._replace(note="tokens")

OVERLAP = [*life(0, "p/a", 1, 5), *life(3, "q/b", 2, 6)]
ROBBED = [asked(0, "p/a"), granted(1, "p/a", 1), lost(3, "p/a")]
HEARD_LATE = [
    *[asked(0, "p/a"), granted(5, "p/a", 1, until=8), *over(7, "p/a")],
    *life(3, "q/b", 2, 6),
]
"""The first grant is the older one: its owner heard of it only after the second had been returned."""


@pytest.mark.parametrize("fault", [FORGOT, JUMPED, TOKENS], ids=["memory", "clock", "memory and clock"])
@pytest.mark.parametrize("history", [OVERLAP, ROBBED, HEARD_LATE], ids=["overlap", "robbed", "heard of late"])
def test_a_lease_from_before_a_declared_fault_may_be_overlapped_or_lost(history: list[Event], fault: Event) -> None:
    assert rules(history) != []
    assert rules([*history, fault]) == []


@pytest.mark.parametrize("fault", [FORGOT, JUMPED], ids=["memory", "clock"])
@pytest.mark.parametrize(
    ("rule", "history"),
    [
        ("overlap", [*life(0, "a", 1, 1.9), *life(0, "b", 2, 1.9)]),
        ("overlap", [*life(3, "a", 1, 6), *life(4, "b", 2, 7)]),
        ("overlap", [*life(3, "a", 1, 6), asked(0, "b"), granted(5, "b", 2), *over(7, "b")]),
        ("token", [*life(0, "a", 2, 5), *life(3, "b", 1, 6)]),
        ("token", [*life(0, "a", 1, 5), *life(3, "b", 1, 6)]),
        ("robbed", [asked(3, "a"), granted(4, "a", 1), lost(5, "a")]),
        ("robbed", [asked(0, "a"), granted(1, "a", 1), lost(1.5, "a")]),
        ("lost update", [wrote(1, "a", 1, 0, 1), wrote(4, "b", 2, 0, 1)]),
        ("passed", [event(3, "b", "handed", note="a b")]),
        ("stolen", [event(3, "b", "removed", note="a")]),
        ("left behind", [event(3, "node", "left", note="lock:job")]),
        ("unanswered", [asked(0, "a")]),
        ("failed", [asked(0, "a"), event(3, "a", "failed")]),
    ],
    ids=[
        *["both before", "both after", "granted after one who asked after", "smaller token", "same token"],
        *["lost after", "lost before", "register", "queue", "removal", "remains", "silence", "failure"],
    ],
)
def test_a_declared_fault_excuses_nothing_else(rule: str, history: list[Event], fault: Event) -> None:
    assert set(rules([*history, fault])) == {rule}


ASKED, GRANTED, OVER = asked(0, "p/a"), granted(1, "p/a", 1), over(4, "p/a")
WRONG_TIME: dict[str, tuple[str, list[Event]]] = {
    "held after the deadline": ("late", [ASKED, GRANTED._replace(until=2), held(3, "p/a", 1), *OVER]),
    "held after the deadline that it tells of": ("late", [ASKED, GRANTED, held(3, "p/a", 1, until=2), lost(4, "p/a")]),
    "granted for too long": ("boasted", [ASKED, granted(2, "p/a", 1, until=20), *OVER]),
    "held for too long": ("boasted", [ASKED, GRANTED, held(3, "p/a", 1, until=20), *OVER]),
    "refused too early": ("impatient", [asked(0, "p/a", until=9), event(3, "p/a", "refused")]),
}


def shifted(history: list[Event], by: float) -> list[Event]:
    return [each._replace(at=each.at + by, until=each.until + by) for each in history]


@pytest.mark.parametrize(("rule", "history"), WRONG_TIME.values(), ids=WRONG_TIME)
def test_who_lived_through_a_wrong_clock_may_be_wrong_about_the_time(rule: str, history: list[Event]) -> None:
    assert rules([*history, JUMPED]) == []
    assert rules([*history, world(1, "jumped", until=float("inf"))]) == []
    assert rules([*history, FORGOT]) == [rule]
    assert rules([*shifted(history, 3), JUMPED]) == [rule]
    assert rules([*shifted(history, -9), JUMPED]) == [rule]


@pytest.mark.parametrize("history", [OVERLAP, ROBBED, HEARD_LATE, WRONG_TIME["held for too long"][1]])
def test_a_fault_of_one_process_or_name_excuses_nothing_of_another(history: list[Event]) -> None:
    assert rules([*history, JUMPED._replace(who="p/")]) == []
    assert rules([*history, JUMPED._replace(name="job")]) == []
    assert rules([*history, JUMPED._replace(who="q/")]) != []
    assert rules([*history, JUMPED._replace(name="other")]) != []


def test_a_wrong_clock_of_the_younger_one_is_no_excuse_for_an_overlap() -> None:
    assert rules([*OVERLAP, world(0, "jumped", who="q/", until=9)]) == ["overlap"]


# Tokens after a node came back without its memory and with a clock that is behind -----------------------------------

SHRUNK = [*life(0, "a", 9, 1.5), *life(3, "b", 1, 5)]


@pytest.mark.parametrize("token", [1, 9], ids=["smaller", "the same"])
def test_a_new_epoch_of_tokens_may_begin_anywhere(token: int) -> None:
    assert rules([*life(0, "a", 9, 1.5), TOKENS, *life(3, "b", token, 5)]) == []
    assert rules([*life(0, "a", 9, 1.5), FORGOT, *life(3, "b", token, 5)]) == ["token"] * (1 if token == 9 else 2)


def test_a_grant_that_may_be_of_either_epoch_is_not_compared() -> None:
    straddling = [asked(2.2, "c"), granted(6, "c", 5), *over(7, "c")]
    assert rules([*SHRUNK, TOKENS, *straddling, *life(8, "d", 2, 10)]) == []


@pytest.mark.parametrize(
    "history",
    [
        [*life(-5, "c", 10, -2), *SHRUNK],
        [*SHRUNK, *life(6, "c", 1, 8)],
        [*life(-5, "c", 9, -2), *SHRUNK],
        [*SHRUNK, held(4, "b", 2), *over(5, "b")],
    ],
    ids=["shrinks before", "the same twice after", "the same twice before", "changes while it is held"],
)
def test_within_an_epoch_tokens_are_judged_as_ever(history: list[Event]) -> None:
    assert set(rules([*history, TOKENS])) == {"token"}


def test_a_new_epoch_of_one_name_is_none_of_another() -> None:
    assert rules([*SHRUNK, TOKENS._replace(name="job")]) == []
    assert set(rules([*SHRUNK, TOKENS._replace(name="other")])) == {"token"}


FORKED = [*SHRUNK, wrote(1.2, "a", 9, 0, 1), wrote(4, "b", 1, 0, 1)]


def test_the_register_is_excused_where_tokens_are() -> None:
    assert rules([*FORKED, TOKENS]) == []
    assert "lost update" in rules([*FORKED, FORGOT])
    assert rules([*FORKED, wrote(4.5, "b", 1, 1, 2), TOKENS]) == []


@pytest.mark.parametrize(
    "write",
    [wrote(1.3, "a", 9, 0, 1), wrote(4.5, "b", 1, 0, 1), wrote(0.9, "a", 9, 5, 6)],
    ids=["before", "after", "the very first"],
)
def test_within_an_epoch_the_register_is_judged_as_ever(write: Event) -> None:
    assert set(rules([*FORKED, write, TOKENS])) == {"lost update"}


def test_where_tokens_began_anew_they_do_not_tell_which_grant_is_older() -> None:
    """The second heard of an old grant only now; its token is of the time before, and larger."""
    young, old = life(3, "q/b", 2, 9), [asked(0, "p/a"), granted(5, "p/a", 7, until=8), *over(7, "p/a")]
    assert rules([*young, *old, TOKENS]) == []
    assert "overlap" in rules([*young, *old, FORGOT])
