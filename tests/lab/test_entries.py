"""Every protocol of the lab is broken by the search, in the way that the page says, and in few events."""

import re

import pytest

from gripfast_lab.entries import BY_NAME, ENTRIES
from gripfast_lab.entry import Entry
from gripfast_lab.model import Lab
from gripfast_lab.page import source_of
from gripfast_lab.verdicts import Verdict, judged
from lab.searches import NAMES, searched, somebody_gets_in, without_faults

pytestmark = pytest.mark.in_turn(3)

MOST_EVENTS = 15
NEEDS_NO_FAULT = {
    "redlock-split", "semaphore-refilled", "semaphore-two-steps", "readers-upgrade", "readers-first", "handed-over-id",
    "once-flag-after",
}  # fmt: skip
SLOW_TO_SEARCH = "redlock-counters"
FAULTS = {
    "crash", "slow", "pause", "cut", "wrong clock", "failover", "session", "node down", "clock", "restart",
    "replica cut off", "goes on", "switch-over", "stalled disk",
}  # fmt: skip
NAMED = [
    "setnx-del", "setnx-expire", "multi-exec", "getset-clock", "getset-owner", "getset-overwritten", "set-nx-ex-del",
    "get-compare-del", "slow-holder", "watchdog", "watchdog-paused", "thread-local", "hash-count", "failover",
    "failover-wait", "failover-wait-connected", "failover-grace-run-id", "failover-grace",
    "table", "for-update", "zookeeper-orphan", "zookeeper", "etcd-keep-alive", "etcd-keep-alive-read", "etcd-own-key",
    "redlock-one-by-one", "redlock-split", "redlock-paused", "redlock-clock", "redlock-restart", "redlock-counters",
    "semaphore-counter", "semaphore-refilled", "semaphore-two-steps", "semaphore-one-ttl", "semaphore-clocks",
    "readers-counted", "readers-upgrade", "readers-first", "leader-wrote-last", "leader-on-error", "leader-goes-on",
    "handed-over-id", "once-flag-before", "once-flag-after", "once-for-the-period",
]  # fmt: skip


def test_the_lab_has_every_protocol_of_the_notes_from_worst_to_best_and_their_relatives() -> None:
    assert NAMES == NAMED
    assert list(BY_NAME) == NAMED


@pytest.mark.parametrize("name", NAMES)
def test_it_is_broken_by_the_rule_that_it_names(name: str) -> None:
    rule = searched(name).found.what.partition(":")[0]
    assert rule == BY_NAME[name].breaks
    broken = searched(name).story.broken
    assert broken is not None
    assert broken.rule == rule


@pytest.mark.parametrize("name", NAMES)
def test_what_its_program_looks_at_is_kept_in_its_world(name: str) -> None:
    """A clock that its world does not keep would stand still."""
    protocol = BY_NAME[name].protocol()
    program = source_of(BY_NAME[name])
    assert protocol.tells_time or "clock()" not in program
    assert protocol.takes_time or "elapsed()" not in program


@pytest.mark.parametrize("name", NAMES)
def test_its_history_is_short(name: str) -> None:
    assert 1 < len(searched(name).story.moments) <= MOST_EVENTS


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_a_fault_to_break_it_unless_it_needs_none(name: str) -> None:
    search = searched(name)
    trail = search.found.trail
    happened = any(act.kind in FAULTS or act.kind == "asks in vain" or act.unreached for act, _ in trail)
    assert happened == (name not in NEEDS_NO_FAULT)


@pytest.mark.parametrize("name", NAMES)
def test_no_more_goes_wrong_than_its_world_allows(name: str) -> None:
    search = searched(name)
    assert all(left >= 0 for state in search.path for left in state.left)
    spent = sum(search.entry.protocol().faults.values()) - sum(search.last.left)
    told = sum(act.kind in FAULTS or act.kind == "asks in vain" for act, _ in search.found.trail)
    assert spent >= told


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEEDS_NO_FAULT])
def test_in_a_calm_world_it_holds(name: str) -> None:
    calm = Verdict(BY_NAME[name], 0, None).calm
    assert calm.ended, calm
    assert not calm.violations


@pytest.mark.parametrize("name", sorted(NEEDS_NO_FAULT))
def test_what_needs_no_fault_is_broken_in_a_calm_world_too(name: str) -> None:
    assert Verdict(BY_NAME[name], 0, None).calm.violations


@pytest.mark.parametrize("name", NAMES)
def test_in_a_calm_world_somebody_gets_the_lock(name: str) -> None:
    """Otherwise to hold would be no merit."""
    lab = Lab(name, BY_NAME[name].protocol())
    assert any(somebody_gets_in(lab, without_faults(start)) for start in lab.starts())


@pytest.mark.parametrize("name", [name for name in NAMES if name != SLOW_TO_SEARCH])
def test_the_verdict_is_what_the_search_has_found(name: str) -> None:
    search, verdict = searched(name), judged(BY_NAME[name])
    assert verdict.is_as_expected
    assert (verdict.states, verdict.story) == (search.report.states, search.story)
    assert str(verdict) == f"{search.entry.breaks} breaks after {len(search.story.moments)} events"


def test_another_rule_than_expected_is_not_as_expected() -> None:
    story = searched("failover").story
    assert not Verdict(BY_NAME["setnx-del"], 1, story).is_as_expected
    unbroken = Verdict(BY_NAME["failover"], 1234, None)
    assert not unbroken.is_as_expected
    assert str(unbroken) == "nothing found in 1,234 states"


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_all_that_is_said_of_it_is_whole_sentences(entry: Entry) -> None:
    for text in (entry.idea, entry.happens, entry.notes or entry.seen, entry.answer):
        assert re.fullmatch(r"[A-Z`].*[.][)]?", text), text
        assert "  " not in text


def test_titles_and_names_are_told_apart() -> None:
    assert len({entry.title for entry in ENTRIES}) == len(ENTRIES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in NAMES)
