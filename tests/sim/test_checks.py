"""The checkers themselves: what is right passes, and each planted violation is reported under its rule, and alone."""

import subprocess
import sys
from typing import Any

import pytest

from gripfast_lab.sim.checks import RULES, violations
from gripfast_lab.sim.history import Event, Kind
from sim.events import asked, event, granted, held, life, lost, over, rules, world, wrote

DONE: tuple[Kind, ...] = ("releasing", "released")
GOOD: dict[str, list[Event]] = {
    "nothing": [],
    "one after the other": life(0, "a", 1, 3) + life(2.5, "b", 2, 5) + life(6, "a", 3, 7),
    "a release that is still under way": life(0, "a", 1, 3) + life(2.04, "b", 2, 5),
    "granted at the moment of the release": life(0, "a", 1, 3) + life(2, "b", 2, 5),
    "done again when that was forgotten": [
        *[asked(0, "a", note="once 2.0"), granted(1, "a", 1)],
        *[event(3, "a", kind, ttl=2.0, note="done") for kind in DONE],
        *life(5, "b", 2, 8, note="once 2.0"),
    ],
    "told that it is done": [
        *[asked(0, "a", note="once 20.0"), granted(1, "a", 1)],
        *[event(3, "a", kind, ttl=20.0, note="done") for kind in DONE],
        *[asked(4, "b", until=9, note="once 20.0"), event(5, "b", "refused", note="done")],
    ],
    "a limit that was raised": [
        *[event(0, "world", "resized", token=1), *life(0, "a", 1, 5, note="1 of 1")],
        *[event(1, "world", "resized", token=2), *life(2, "b", 2, 4, note="1 of 2")],
    ],
    "another name at the same time": life(0, "a", 1, 3) + [each._replace(name="other") for each in life(0, "b", 1, 3)],
    "expired, and granted to the next": [asked(0, "a"), granted(1, "a", 1), lost(12, "a"), *life(9.5, "b", 2, 12)],
    "died, and granted to the next": [
        *[asked(0, "p/a"), granted(1, "p/a", 1), world(2, "died", who="p/")],
        *life(2.5, "b", 2, 5),
    ],
    "renewed": [asked(0, "a", renews=True), granted(1, "a", 1), held(9, "a", 1), held(20, "a", 1), *over(21, "a")],
    "told held until the last moment": [
        *[asked(0, "a"), granted(1, "a", 1, until=5), held(5, "a", 1, until=5), lost(6, "a")],
    ],
    "extended by a larger ttl": [
        *[asked(0, "a"), granted(1, "a", 1), held(2, "a", 1, until=22, ttl=20.0), *over(21, "a")],
    ],
    "refused when patience was over": [asked(0, "a", until=2), event(2, "a", "refused")],
    "not reached until patience was over": [asked(0, "a", patience=2), event(2, "a", "unreachable")],
    "given up": [asked(0, "a", until=2), event(1, "a", "cancelled")],
    "a lease that was over when it was returned": [
        *life(0, "a", 2, 5),
        *[asked(0, "b"), granted(3, "b", 1, until=2.5), lost(3.1, "b")],
    ],
    "handed to the first in line": [event(1, "a", "handed", token=1, note="a b c")],
    "handed to someone whose name begins like another's": [event(1, "a 1", "handed", token=1, note="a 1 a 2")],
    "handed to the one who asks, and nobody waits": [event(1, "a", "handed", token=1)],
    "removed by its owner": [event(1, "a", "removed", note="a")],
    "updates in order": [wrote(1, "a", 1, 0, 1), wrote(2, "a", 1, 1, 2), wrote(3, "b", 2, 2, 7)],
    "a register for each name": [wrote(1, "a", 2, 0, 1), wrote(2, "b", 1, 0, 1)._replace(name="other")],
    "faults of which nothing came": [
        *[world(0, "fault", note="cut"), world(0, "broke"), world(1, "healed")],
        *[world(1, "forgot", until=2), world(2, "jumped", until=3)],
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_what_is_right_passes(history: list[Event]) -> None:
    assert violations(history, may_be_unreachable=True) == []


def test_the_order_of_the_list_does_not_matter() -> None:
    assert violations(list(reversed(GOOD["one after the other"]))) == []


def test_at_the_same_moment_the_order_of_the_list_matters() -> None:
    first, second = wrote(1, "a", 1, 0, 1), wrote(1, "b", 2, 1, 2)
    assert rules([first, second]) == []
    assert rules([second, first]) == ["lost update", "lost update"]


HEALED = world(3, "healed")

PLANTED: dict[str, tuple[str, list[Event]]] = {
    "two at the same time": ("overlap", life(0, "a", 1, 3) + life(1, "b", 2, 5)),
    "a third behind two that follow each other": (
        "overlap",
        [*life(0, "a", 1, 9), asked(0, "b"), granted(2, "b", 2, until=3), lost(3.5, "b")],
    ),
    "one more while the first, which was renewed, still believes": (
        "overlap",
        [asked(0, "a", renews=True), granted(1, "a", 1), held(8, "a", 1), *over(13, "a"), *life(11, "b", 2, 20)],
    ),
    "more permits than there are": (
        "exceeded",
        [
            *[*life(0, "a", 1, 5, note="2 of 3"), *life(1, "b", 2, 4, note="1 of 3")],
            *life(2, "c", 3, 5, note="1 of 3"),
        ],
    ),
    "a writer beside a reader that was one": (
        "exceeded",
        [
            *[asked(0, "a", note="9 of 9"), granted(1, "a", 1), held(2, "a", 1, note="1 left"), *over(8, "a")],
            *[*life(2, "b", 2, 4, note="1 of 9"), *life(5, "c", 3, 7, note="9 of 9")],
        ],
    ),
    "one slot for two": (
        "slot",
        [
            *[asked(0, "a", note="2 of 3"), granted(1, "a", 1, note="0,1"), *over(5, "a")],
            *[asked(1, "b", note="1 of 3"), granted(2, "b", 2, note="1"), *over(3, "b")],
        ],
    ),
    "begun again after it was done": (
        "redone",
        [
            *[asked(0, "a", note="once 30.0"), granted(1, "a", 1)],
            *[event(3, "a", kind, ttl=30.0, note="done") for kind in DONE],
            *life(5, "b", 2, 8, note="once 30.0"),
        ],
    ),
    "done by nobody": ("invented", [asked(0, "a", note="once 30.0"), event(1, "a", "refused", note="done")]),
    "granted within a min_hold": (
        "hurried",
        [*life(0, "a", 1, 3, note="min_hold 20.0"), *life(4, "b", 2, 7)],
    ),
    "freed within a min_hold": (
        "hurried",
        [*life(0, "a", 1, 3, note="min_hold 20.0"), event(3, "a#1", "freed", token=1)],
    ),
    "adopted one after the other": (
        "adopted",
        [*life(0, "a", 1, 3, note="adopts p/x#1"), *life(4, "b", 2, 7, note="adopts p/x#1")],
    ),
    "detached, and there again": (
        "came back",
        [*life(0, "a", 1, 3), event(5, "a#1", "returned", note="handed")],
    ),
    "more than a limit that was lowered": (
        "exceeded",
        [
            *[event(0, "world", "resized", token=3), *life(0, "a", 1, 5, note="1 of 3")],
            *[event(1, "world", "resized", token=1), *life(2, "b", 2, 4, note="1 of 3")],
        ],
    ),
    "another limit where there was none": (
        "failed",
        [
            *[asked(0, "a", note="1 of 3"), event(1, "a", "refused", note="another limit")],
            event(0, "world", "resized", token=3),
        ],
    ),
    "the same token twice": ("token", life(0, "a", 1, 3) + life(4, "b", 1, 6)),
    "a token that shrinks": ("token", life(0, "a", 2, 3) + life(4, "b", 1, 6)),
    "a token that shrinks although the second asked before": ("token", life(0, "a", 2, 3) + life(2.5, "b", 1, 6)),
    "a token that changes while it is held": ("token", [*life(0, "a", 1, 3), held(2, "a", 2, until=9)]),
    "held after the deadline": (
        "late",
        [asked(0, "a"), granted(1, "a", 1, until=5), held(6, "a", 1, until=7), lost(8, "a")],
    ),
    "held after the deadline that it tells of": (
        "late",
        [asked(0, "a"), granted(1, "a", 1), held(5, "a", 1, until=4.5), lost(6, "a")],
    ),
    "renewed, and held after the deadline that it tells of": (
        "late",
        [asked(0, "a", renews=True), granted(1, "a", 1), held(12, "a", 1, until=11), lost(13, "a")],
    ),
    "held after a loss": (
        "revived",
        [asked(0, "a", renews=True), granted(1, "a", 1), lost(11, "a"), held(12, "a", 1)],
    ),
    "held after its own release": ("revived", [*life(0, "a", 1, 3), held(4, "a", 1)]),
    "granted for longer than its ttl": ("boasted", [asked(0, "a"), granted(1, "a", 1, until=12), *over(2, "a")]),
    "held for longer than its ttl": ("boasted", [*life(0, "a", 1, 3), held(2, "a", 1, until=13)]),
    "lost before its time": ("robbed", [asked(0, "a"), granted(1, "a", 1), lost(2, "a")]),
    "refused before patience was over": ("impatient", [asked(0, "a", until=2), event(1.9, "a", "refused")]),
    "not reached, and not tried again": ("impatient", [asked(0, "a", patience=2), event(1.9, "a", "unreachable")]),
    "no answer": ("unanswered", [asked(0, "a")]),
    "no answer before the next question": ("unanswered", [asked(0, "a"), *life(2, "a", 1, 5)]),
    "a lease that nobody ends": ("unanswered", [asked(0, "a"), granted(1, "a", 1)]),
    "an exception that no caller should see": ("failed", [asked(0, "a"), event(1, "a", "failed", note="KeyError()")]),
    "handed to the second in line": ("passed", [event(1, "b", "handed", token=1, note="a b")]),
    "handed to one who does not stand in line": ("passed", [event(1, "c", "handed", token=1, note="a b")]),
    "handed to one whose name is the beginning of another's": ("passed", [event(1, "a", "handed", note="ab a")]),
    "removed by another": ("stolen", [event(1, "b", "removed", note="a")]),
    "an update that read too early": ("lost update", [wrote(1, "a", 1, 0, 1), wrote(2, "b", 2, 0, 1)]),
    "an update that starts from nowhere": ("lost update", [wrote(1, "a", 1, 3, 4)]),
    "an update behind a larger token": ("lost update", [wrote(1, "a", 2, 0, 1), wrote(2, "b", 1, 1, 2)]),
    "a grant that no engine made": ("token", [*life(0, "a", 1, 3), event(0.5, "a#1", "handed", token=2)]),
    "held for longer than the engine keeps it": (
        "outlived",
        [asked(0, "a"), granted(1, "a", 1), event(1, "a", "outlived", until=5), *over(3, "a")],
    ),
    "a loss that nobody told": (
        "misled",
        [asked(0, "a"), granted(1, "a", 1), event(11, "a", "misled", note="not told"), lost(11, "a")],
    ),
    "a renewal of what is not its own": ("confirmed", [event(1, "a", "confirmed", note="b")]),
    "a free lock that someone waits for": ("idle", [event(1, "a", "idle", note="b c")]),
    "a grant in a grace": ("hasty", [event(1, "a", "hasty", until=3)]),
    "a key that stays": ("left behind", [event(9, "node", "left", note="lock:job")]),
}


@pytest.mark.parametrize(("rule", "history"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_reported(rule: str, history: list[Event]) -> None:
    assert set(rules(history, may_be_unreachable=True)) == {rule}


def test_every_rule_has_a_planted_violation() -> None:
    elsewhere = {"unreachable", "stuck", "neglected", "overdue", "overtaken"}  # these take options; below
    assert {rule for rule, _ in PLANTED.values()} | elsewhere == set(RULES)


def test_a_server_that_can_not_be_reached_is_a_violation_where_nothing_is_in_the_way() -> None:
    assert rules([asked(0, "a"), event(1, "a", "unreachable")]) == ["unreachable"]


def test_once_the_faults_are_over_it_must_be_reached_even_where_they_were_allowed() -> None:
    before, after = asked(0, "a"), asked(4, "b", patience=6)
    history = [before, event(1, "a", "unreachable"), HEALED, after, event(6, "b", "unreachable")]
    assert rules(history, may_be_unreachable=True) == ["unreachable"]
    assert rules(history[:3], may_be_unreachable=True) == []
    assert rules(history, may_be_unreachable=True, reacts_within=3.0) == [], "too little patience to be sure"


RAN_OUT = [asked(0, "a", renews=True), granted(1, "a", 1), held(20, "a", 1), lost(29, "a")]


@pytest.mark.parametrize(
    "fault", [[], [world(5, "fault", until=6)]], ids=["nothing happened", "a fault was over long before"]
)
def test_a_lease_that_renews_itself_and_runs_out_is_reported(fault: list[Event]) -> None:
    assert rules([*RAN_OUT, *fault], reacts_within=3.0) == ["neglected"]


@pytest.mark.parametrize(
    "more",
    [
        [world(26, "fault", until=27)],
        [world(5, "fault", until=60)],
        [world(5, "jumped", until=6)],
        [world(5, "forgot", until=6)],
    ],
    ids=["a fault shortly before", "a fault that lasts", "a clock", "a loss of memory"],
)
def test_something_in_the_way_of_a_renewal_excuses_it(more: list[Event]) -> None:
    assert rules([*RAN_OUT, *more], reacts_within=3.0) == []


def test_a_lease_that_does_not_renew_itself_runs_out() -> None:
    history = [RAN_OUT[0]._replace(renews=False), granted(1, "a", 1), lost(10, "a")]
    assert rules(history, reacts_within=3.0) == []


REFUSED_LATE = [asked(0, "a", until=2), event(9, "a", "refused")]


def test_a_refusal_long_after_patience_was_over_is_reported() -> None:
    assert rules(REFUSED_LATE, reacts_within=3.0) == ["overdue"]
    assert rules(REFUSED_LATE, reacts_within=8.0) == []
    assert rules([*REFUSED_LATE, world(4, "fault", until=8)], reacts_within=3.0) == []


OVERTAKEN = [
    *[*life(0, "p/a", 1, 3), event(1, "p/a#1", "handed", token=1)],
    *[asked(4, "p/b", until=4), event(5, "p/b", "refused", note="held by p/a#1")],
]


CUT = world(1.5, "fault", until=1.5, note="connections half open")._replace(who="p")


def test_a_refusal_by_a_lease_that_the_same_client_has_released_is_reported() -> None:
    assert rules(OVERTAKEN, reacts_within=1.0) == ["overtaken"]
    assert rules([*OVERTAKEN, world(3, "fault", until=3, note="scripts forgotten")], reacts_within=1.0) == ["overtaken"]
    asks_between = [*OVERTAKEN, asked(1.8, "p/c", until=1.8), event(1.9, "p/c", "refused", note="held by p/a#1"), CUT]
    assert "overtaken" in rules(asks_between, reacts_within=1.0)
    assert rules([*OVERTAKEN, CUT._replace(who="q")], reacts_within=1.0) == ["overtaken"]
    late = [each._replace(at=each.at + 2.0, until=6.0) if each.who == "p/b" else each for each in OVERTAKEN]
    assert rules([*late, CUT], reacts_within=1.0) == ["overtaken"]


@pytest.mark.parametrize(
    "history",
    [
        [*OVERTAKEN, world(3, "fault", until=3, note="lost request")],
        [*OVERTAKEN, CUT],
        [each._replace(who="q/b") if each.who == "p/b" else each for each in OVERTAKEN],
        [each._replace(at=each.at - 2.0) if each.who == "p/b" else each for each in OVERTAKEN],
        [each._replace(note="held by q/x#1") if each.kind == "refused" else each for each in OVERTAKEN],
    ],
    ids=["a fault", "a half-open connection", "another client", "before the release", "another holder"],
)
def test_any_other_refusal_is_right(history: list[Event]) -> None:
    assert "overtaken" not in rules(history, reacts_within=1.0)


RESTORED = world(3.5, "forgot", until=3.5, note="tokens")


def test_a_restored_backup_may_bring_back_what_was_released() -> None:
    assert rules([*OVERTAKEN, RESTORED], reacts_within=1.0) == []


@pytest.mark.parametrize(
    "fault",
    [
        RESTORED._replace(at=2.0, until=2.0),
        RESTORED._replace(at=5.5, until=5.5),
        RESTORED._replace(name="other"),
        RESTORED._replace(note=""),
    ],
    ids=["before the release", "after the refusal", "of another name", "nothing comes back"],
)
def test_only_a_backup_that_was_restored_after_the_release_brings_it_back(fault: Event) -> None:
    assert "overtaken" in rules([*OVERTAKEN, fault], reacts_within=1.0)


DONE_AND_FREED = [
    *[asked(0, "p/a", note="once 4"), event(0.5, "p/a#1", "handed", token=1), granted(1, "p/a", 1)],
    *[event(2, "p/a", "releasing", note="done", ttl=4.0), event(2.1, "p/a", "released", note="not done: broken")],
    *[event(8, "p/a#1", "freed", token=1)],
]


def test_done_and_then_freed_is_reported_of_the_same_owner_only() -> None:
    restored = RESTORED._replace(at=1.5, until=1.5)
    assert rules([*DONE_AND_FREED, restored]) == ["redone"]
    others = [each._replace(who="q/b#1") if each.kind == "freed" else each for each in DONE_AND_FREED]
    assert rules([*others, restored]) == []
    untold = [each for each in DONE_AND_FREED if each.kind != "handed"]
    assert rules([*untold, restored]) == ["redone"]


def test_a_violation_says_who_and_when() -> None:
    (found,) = violations(PLANTED["two at the same time"][1])
    assert str(found) == ("overlap: 'job', a token 1 from 1.000000 to 3.000000 and b token 2 from 2.000000 to 5.000000")


def test_a_lost_update_says_whose() -> None:
    (found,) = violations(PLANTED["an update that read too early"][1])
    assert found.what == "b with token 2 at 2.000000 read 0, but a with token 1 at 1.000000 wrote 1"


WAITS_FOR_IT = [
    *(asked(0, "a"), granted(1, "a", 1), event(2, "a", "releasing"), event(2, "a", "released")),
    *(asked(1, "b", until=9), granted(2.4, "b", 2), event(3, "b", "releasing"), event(3, "b", "released")),
]


def test_a_waiter_that_is_not_notified_is_reported_where_waiters_are() -> None:
    assert rules(WAITS_FOR_IT, notifies=True) == ["idle"]
    assert rules(WAITS_FOR_IT) == []


@pytest.mark.parametrize(
    "history",
    [
        [each._replace(at=2.2) if each.kind == "granted" and each.who == "b" else each for each in WAITS_FOR_IT],
        [each._replace(note="min_hold 5.0") if each.kind == "asked" else each for each in WAITS_FOR_IT],
        [*WAITS_FOR_IT, world(2.1, "fault", until=2.2, note="leader moved")],
        [each._replace(note="detached") if each.at == 2 else each for each in WAITS_FOR_IT],
    ],
    ids=["soon enough", "kept", "a fault", "detached"],
)
def test_any_other_waiter_is_notified_in_time(history: list[Event]) -> None:
    assert "idle" not in rules(history, notifies=True)


DISPLACED = [*life(0, "p/a", 1, 9), event(6, "p/b#1", "displaced", ttl=2.0)]


def test_a_waiter_that_loses_its_place_without_cause_is_reported() -> None:
    assert rules(DISPLACED, reacts_within=1.0) == ["passed"]
    before = world(1, "fault", until=2, note="leader moved")
    assert rules([*DISPLACED, before], reacts_within=1.0) == ["passed"]
    assert rules([*DISPLACED, before._replace(until=3.5)], reacts_within=1.0) == []


def kept(until: float, age: float) -> list[Event]:
    """Done at 5, and left to a marker under a lease of this age."""
    return [
        *[asked(0, "p/a", note="once 4"), event(0.5, "p/a#1", "handed", token=1), granted(1, "p/a", 1)],
        *[event(5, "p/a", "releasing", note="done", ttl=4.0), event(5.2, "p/a", "released", note="done")],
        *[event(5.1, "p/a#1", "kept", token=1, until=until, ttl=age, note="done:p/a#1")],
    ]


def test_what_is_done_is_kept_from_the_moment_of_its_release_on_however_old_its_lease_is() -> None:
    assert rules(kept(9.0, 0.1)) == []
    assert rules(kept(9.1, 3.0)) == []
    assert rules(kept(6.1, 3.0)) == ["redone"]


def in_trouble(note: str, *more: Event) -> list[Event]:
    return [
        *[asked(0, "p/a", renews=True), granted(1, "p/a", 1), lost(10, "p/a")],
        *[world(0.5, "fault", until=20, note=note), *more],
    ]


FOLLOWER = "member paused m1 of a follower"


@pytest.mark.parametrize(
    ("history", "with_others"),
    [
        (in_trouble("member paused m1"), ["p"]),
        (in_trouble(FOLLOWER), ["q"]),
        (in_trouble(FOLLOWER, world(5, "fault", until=5, note="member crashed m2 of a follower")), ["p"]),
        (in_trouble(FOLLOWER, world(5, "fault", until=5, note="lost request")), ["p"]),
        (
            [each._replace(ttl=0.5, until=1.4) if each.token or each.ttl else each for each in in_trouble(FOLLOWER)],
            ["p"],
        ),
    ],
    ids=["the leader", "it knows no other", "two followers", "another fault", "too little time"],
)
def test_a_lease_may_expire_where_no_other_member_can_help(history: list[Event], with_others: list[str]) -> None:
    assert rules(history, reacts_within=1.0, with_others=with_others) == []


def test_one_follower_that_fails_costs_no_lease_and_no_attempt() -> None:
    assert rules(in_trouble(FOLLOWER), reacts_within=1.0, with_others=["p"]) == ["neglected"]
    for note, found in ((FOLLOWER, ["unreachable"]), ("member paused m1", [])):
        history = [
            *[asked(1, "p/a", until=9, patience=9), event(9, "p/a", "unreachable", note="StoreUnavailable")],
            world(0.5, "fault", until=20, note=note),
        ]
        options: dict[str, Any] = {"may_be_unreachable": True, "reacts_within": 1.0, "with_others": ["p"]}
        assert rules(history, **options) == found


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
    [[], [world(4, "broke"), *MUCH_LATER]],
    ids=["the history ends before", "another fault comes before"],
)
def test_where_the_history_does_not_tell_nothing_is_reported(after: list[Event]) -> None:
    assert rules([*life(0, "a", 1, 1.5), HEALED, *after], recover_within=2.0) == []


def test_the_checkers_can_be_had_without_any_engine() -> None:
    code = "import sys, gripfast_lab.sim.checks; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"lupa", "redis", "hiredis"}.isdisjoint(loaded)
