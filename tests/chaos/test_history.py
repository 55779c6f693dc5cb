"""The checker itself: what is right passes, and each planted violation is reported under its rule, and alone."""

from typing import Any

import pytest

from support.history import WORLD, Event, Kind, violations

TTL = 10.0


def event(at: float, who: str, kind: Kind, **more: Any) -> Event:
    return Event(at, who, more.pop("name", "job"), kind, **more)


def asked(at: float, who: str, **more: Any) -> Event:
    return event(at, who, "asked", **{"until": at, "ttl": TTL, **more})


def granted(at: float, who: str, token: int, **more: Any) -> Event:
    return event(at, who, "granted", token=token, **{"until": at + 9.0, **more})


def held(at: float, who: str, token: int, **more: Any) -> Event:
    return event(at, who, "held", token=token, **{"until": at + 9.0, "ttl": TTL, **more})


def life(start: float, who: str, token: int, end: float, **more: Any) -> list[Event]:
    """Asked, granted a second later, released at the end."""
    return [
        asked(start, who, **more),
        granted(start + 1.0, who, token),
        event(end, who, "releasing"),
        event(end + 0.1, who, "released"),
    ]


def rules(history: list[Event], **options: Any) -> list[str]:
    return [violation.rule for violation in violations(history, **options)]


GOOD: dict[str, list[Event]] = {
    "nothing": [],
    "one after the other": life(0, "a", 1, 3) + life(2.5, "b", 2, 5) + life(6, "a", 3, 7),
    "a release that is still under way": life(0, "a", 1, 3) + life(2.04, "b", 2, 5),
    "another name at the same time": life(0, "a", 1, 3) + [each._replace(name="other") for each in life(0, "b", 1, 3)],
    "expired, and granted to the next": [
        *[asked(0, "a"), granted(1, "a", 1), event(12, "a", "lost", note="expired")],
        *life(9.5, "b", 2, 12),
    ],
    "died, and granted to the next": [
        *[asked(0, "p/a"), granted(1, "p/a", 1), event(2, "p/", "died", name="*")],
        *life(2.5, "b", 2, 5),
    ],
    "renewed": [
        *[asked(0, "a", renews=True), granted(1, "a", 1), held(9, "a", 1), held(20, "a", 1)],
        *[event(21, "a", "releasing"), event(22, "a", "released")],
    ],
    "refused when patience was over": [asked(0, "a", until=2), event(2, "a", "refused")],
    "not reached until patience was over": [asked(0, "a", patience=2), event(2, "a", "unreachable")],
    "given up": [asked(0, "a", until=2), event(1, "a", "cancelled")],
    "a lease that was over when it was returned": [
        *life(0, "a", 2, 5),
        *[asked(0, "b"), granted(3, "b", 1, until=2.5), event(3.1, "b", "lost", note="expired")],
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_what_is_right_passes(history: list[Event]) -> None:
    assert violations(history, may_be_unreachable=True) == []


def test_the_order_of_the_list_does_not_matter() -> None:
    assert violations(list(reversed(GOOD["one after the other"]))) == []


PLANTED: dict[str, tuple[str, list[Event]]] = {
    "two at the same time": ("overlap", life(0, "a", 1, 3) + life(1, "b", 2, 5)),
    "a third behind two that follow each other": (
        "overlap",
        [*life(0, "a", 1, 9), asked(0, "b"), granted(2, "b", 2, until=3), event(3.5, "b", "lost", note="expired")],
    ),
    "one more while the first, which was renewed, still believes": (
        "overlap",
        [
            *[asked(0, "a", renews=True), granted(1, "a", 1), held(8, "a", 1)],
            *[event(13, "a", "releasing"), event(14, "a", "released"), *life(11, "b", 2, 20)],
        ],
    ),
    "the same token twice": ("token", life(0, "a", 1, 3) + life(4, "b", 1, 6)),
    "a token that shrinks": ("token", life(0, "a", 2, 3) + life(4, "b", 1, 6)),
    "a token that changes while it is held": (
        "token",
        [*life(0, "a", 1, 3), held(2, "a", 2, until=9)],
    ),
    "held after the deadline": (
        "late",
        [asked(0, "a"), granted(1, "a", 1, until=5), held(6, "a", 1, until=7), event(8, "a", "lost", note="expired")],
    ),
    "held after a loss": (
        "revived",
        [asked(0, "a", renews=True), granted(1, "a", 1), event(11, "a", "lost", note="expired"), held(12, "a", 1)],
    ),
    "held after its own release": ("revived", [*life(0, "a", 1, 3), held(4, "a", 1)]),
    "granted for longer than its ttl": (
        "boasted",
        [asked(0, "a"), granted(1, "a", 1, until=12), event(2, "a", "releasing"), event(3, "a", "released")],
    ),
    "held for longer than its ttl": (
        "boasted",
        [*life(0, "a", 1, 3), held(2, "a", 1, until=13)],
    ),
    "lost before its time": (
        "robbed",
        [asked(0, "a"), granted(1, "a", 1), event(2, "a", "lost", note="taken")],
    ),
    "refused before patience was over": ("impatient", [asked(0, "a", until=2), event(1.9, "a", "refused")]),
    "not reached, and not tried again": (
        "impatient",
        [asked(0, "a", patience=2), event(1.9, "a", "unreachable")],
    ),
    "no answer": ("unanswered", [asked(0, "a")]),
    "a lease that nobody ends": ("unanswered", [asked(0, "a"), granted(1, "a", 1)]),
    "an exception that no caller should see": ("failed", [asked(0, "a"), event(1, "a", "failed", note="KeyError()")]),
}


@pytest.mark.parametrize(("rule", "history"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_reported(rule: str, history: list[Event]) -> None:
    assert set(rules(history, may_be_unreachable=True)) == {rule}


def test_a_server_that_can_not_be_reached_is_a_violation_where_nothing_is_in_the_way() -> None:
    assert rules([asked(0, "a"), event(1, "a", "unreachable")]) == ["unreachable"]


FORGOT = event(2, WORLD, "forgot", name="*", until=2.5)


def test_after_a_loss_of_memory_a_lease_from_before_may_overlap_one_from_after() -> None:
    assert rules([*life(0, "a", 1, 5), FORGOT, *life(3, "b", 2, 6)]) == []


def test_after_a_loss_of_memory_a_lease_from_before_may_be_lost() -> None:
    assert rules([asked(0, "a"), granted(1, "a", 1), FORGOT, event(3, "a", "lost", note="expired")]) == []


@pytest.mark.parametrize(
    ("rule", "history"),
    [
        ("overlap", life(0, "a", 1, 1.9) + life(0, "b", 2, 1.9) + [FORGOT]),
        ("overlap", [FORGOT, *life(3, "a", 1, 6), *life(4, "b", 2, 7)]),
        ("token", [*life(0, "a", 2, 5), FORGOT, *life(3, "b", 1, 6)]),
        ("robbed", [FORGOT, asked(3, "a"), granted(4, "a", 1), event(5, "a", "lost", note="taken")]),
        ("robbed", [asked(0, "a"), granted(1, "a", 1), event(1.5, "a", "lost", note="taken"), FORGOT]),
    ],
    ids=["both before", "both after", "tokens", "lost after", "lost before"],
)
def test_a_loss_of_memory_excuses_nothing_else(rule: str, history: list[Event]) -> None:
    assert set(rules(history)) == {rule}


HEALED = event(3, WORLD, "healed", name="*")
MUCH_LATER = life(20, "c", 9, 22)


@pytest.mark.parametrize(
    "after", [life(4, "b", 2, 6), life(1, "b", 2, 5)], ids=["someone gets it", "someone has it all along"]
)
def test_recovery_in_time(after: list[Event]) -> None:
    assert rules([*life(0, "a", 1, 1.5), HEALED, *after, *MUCH_LATER], recover_within=2.0) == []


@pytest.mark.parametrize("after", [MUCH_LATER, life(5, "b", 2, 7)], ids=["nobody", "too late"])
def test_a_lock_that_nobody_gets_after_the_faults_is_reported(after: list[Event]) -> None:
    assert rules([*life(0, "a", 1, 1.5), HEALED, *after], recover_within=2.0) == ["stuck"]


@pytest.mark.parametrize(
    "after",
    [[], [event(4, WORLD, "broke", name="*"), *MUCH_LATER]],
    ids=["the history ends before", "another fault comes before"],
)
def test_where_the_history_does_not_tell_nothing_is_reported(after: list[Event]) -> None:
    assert rules([*life(0, "a", 1, 1.5), HEALED, *after], recover_within=2.0) == []
