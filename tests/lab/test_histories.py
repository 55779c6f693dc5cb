"""A history that the lab shows is true: it can happen, nothing shorter does it, and it ends where a rule breaks."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from gripfast_lab.entries import BY_NAME
from gripfast_lab.model import Lab
from gripfast_lab.story import Story
from gripfast_lab.verdicts import judged
from gripfast_lab.world import Client, State, Work
from lab.searches import (
    BROKEN_BY,
    NAMES,
    TOO_MANY,
    is_wrong_within,
    reachable,
    searched,
    somebody_gets_in,
    without_faults,
)

pytestmark = pytest.mark.in_turn(3)

CHEAP = ["set-nx-ex-del", "zookeeper", "failover-wait", "redlock-split"]


def holders_after(story: Story, moment: int) -> set[str]:
    """By the bars, without those who are paused: they can't do anything."""
    return {
        bar.lane
        for bar in story.bars
        if bar.begins <= moment and (bar.ends is None or moment < bar.ends) and not is_paused(story, bar.lane, moment)
    }


def is_paused(story: Story, lane: str, moment: int) -> bool:
    signs = [each.sign for each in story.moments[: moment + 1] if each.lane == lane]
    return "pause" in signs and "resume" not in signs[signs.index("pause") :]


# It can happen --------------------------------------------------------------------------------------------------------


def replayed(name: str) -> tuple[Lab, list[State]]:
    """The same steps in a new lab, whose engine has never been asked anything."""
    search = searched(name)
    lab = Lab(name, search.entry.protocol())
    path = [next(start for start in lab.starts() if start.first_at == search.last.first_at)]
    for act, after in search.found.trail:
        steps = [state for each, state in lab.steps(path[-1]) if each == act and state.clients == after.clients]
        assert len(set(steps)) == 1, f"{lab.tell(act)}: {steps}"
        path.append(steps[0])
    return lab, path


@pytest.mark.parametrize("name", NAMES)
def test_it_can_happen_and_nothing_is_wrong_before_its_last_step(name: str) -> None:
    lab, (*before, last) = replayed(name)
    assert not any(lab.wrong(state) for state in before)
    assert lab.wrong(last) == searched(name).found.what


@pytest.mark.parametrize("name", CHEAP)
def test_whoever_looks_for_something_shorter_would_see_it(name: str) -> None:
    search = searched(name)
    assert is_wrong_within(len(search.found.trail), Lab(name, search.entry.protocol()))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_shorter_breaks_it(name: str) -> None:
    search = searched(name)
    fewer = len(search.found.trail) - 1
    assert not is_wrong_within(fewer, Lab(name, search.entry.protocol()))


# It shows what breaks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOO_MANY)
def test_too_many_hold_it_after_the_last_moment_and_not_before(name: str) -> None:
    story, limit = searched(name).story, searched(name).lab.protocol.limit
    assert story.broken is not None
    last = len(story.moments) - 1
    assert len(holders_after(story, last)) == limit + 1
    assert holders_after(story, last) == set(story.broken.lanes)
    assert all(len(holders_after(story, moment)) <= limit for moment in range(last))


@pytest.mark.parametrize("name", TOO_MANY)
def test_where_the_overlap_is_shown_the_bars_overlap(name: str) -> None:
    story = searched(name).story
    assert story.broken is not None
    begins, ends = story.broken.begins, story.broken.ends
    assert begins is not None
    assert ends == len(story.moments) - 1
    bars = [bar for bar in story.bars if bar.lane in story.broken.lanes and bar.ends is None]
    assert len(bars) == searched(name).lab.protocol.limit + 1
    assert all(bar.begins <= begins for bar in bars)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TOO_MANY])
def test_a_history_about_something_else_has_no_more_holders_than_may_be(name: str) -> None:
    story, limit = searched(name).story, searched(name).lab.protocol.limit
    assert all(len(holders_after(story, moment)) <= limit for moment in range(len(story.moments)))


@pytest.mark.parametrize("name", BROKEN_BY["progress"])
def test_nobody_gets_in_after_its_end_whatever_happens(name: str) -> None:
    lab, (start, *_, last) = replayed(name)
    assert not somebody_gets_in(lab, without_faults(last))
    assert name in ("redlock-split", "readers-upgrade") or somebody_gets_in(lab, without_faults(start))


@pytest.mark.parametrize("name", BROKEN_BY["progress"])
def test_somebody_wants_it_in_vain(name: str) -> None:
    story = searched(name).story
    assert story.broken is not None
    assert story.broken.lanes
    assert story.goes_on
    last = story.moments[-1]
    assert last.lane in story.broken.lanes
    lab, (*_, state) = replayed(name)
    is_stuck = not list(lab.steps(without_faults(state)))  # the engine makes it wait
    assert is_stuck or last.sign == "refused"
    held = holders_after(story, len(story.moments) - 1)
    assert held == (set(story.broken.lanes) if name == "readers-upgrade" else set())


@pytest.mark.parametrize("name", BROKEN_BY["permit"])
def test_a_permit_is_lost_however_often_all_come_again(name: str) -> None:
    """Whoever has ended is replaced by a new client, again and again."""
    lab, (start, *_, last) = replayed(name)
    limit, seen, open_ = lab.protocol.limit, set[State](), [without_faults(last)]
    while open_:
        for state, (_, after) in reachable(lab, open_.pop()):
            assert sum(client.n for client in after.clients) < limit
            if state not in seen and all(each.is_over or each.is_dead or each.tries_again for each in state.clients):
                fresh = tuple(each if each.is_dead else Client() for each in state.clients)
                open_ += [state._replace(clients=fresh)] if state._replace(clients=fresh) not in seen else []
                seen |= {state, state._replace(clients=fresh)}
    assert any(
        sum(client.n for client in after.clients) == limit for _, (_, after) in reachable(lab, without_faults(start))
    )
    assert seen


@pytest.mark.parametrize("name", BROKEN_BY["turn"])
def test_the_same_state_comes_again_and_the_waiter_has_nothing_meanwhile(name: str) -> None:
    search = searched(name)
    lab, (*_, last) = replayed(name)
    assert search.story.broken is not None
    (who,) = search.story.broken.lanes
    place = lab.protocol.clients.index(who)
    level, seen, depth = {last}, set[State](), 0
    while depth == 0 or last not in level:
        after = {state for each in level for _, state in lab.steps(each)} - seen
        level = {state for state in after if not state.clients[place].holds}
        assert level, "it ends"
        seen |= level
        depth += 1
    assert somebody_gets_in(lab, last)


@pytest.mark.parametrize("name", BROKEN_BY["again"])
def test_it_is_begun_once_more_after_it_was_done(name: str) -> None:
    search = searched(name)
    assert search.last.work is Work.DONE
    assert [bar.ends is None for bar in search.story.bars] == [False, True]
    first, second = search.story.bars
    assert first.ends is not None
    assert first.ends < second.begins == len(search.story.moments) - 1


@pytest.mark.parametrize("name", BROKEN_BY["never"])
def test_it_was_begun_and_is_never_done(name: str) -> None:
    lab, (*_, last) = replayed(name)
    assert last.work is Work.BEGUN
    calm = without_faults(last)
    assert all(after.work is Work.BEGUN for _, (_, after) in reachable(lab, calm))
    (start,) = lab.starts()
    assert any(after.work is Work.DONE for _, (_, after) in reachable(lab, without_faults(start)))


def test_the_tokens_on_the_bars_do_not_grow() -> None:
    story = searched("redlock-counters").story
    assert story.broken is not None
    tokens = [bar.token for bar in story.bars]
    *before, last = (token for token in tokens if token is not None)
    assert last <= max(before)
    assert all(earlier < later for earlier, later in pairwise(before))
    shown = {bar.lane for bar in story.bars if bar.token is not None and bar.token >= last}
    assert set(story.broken.lanes) == shown
    assert len(shown) == 2


# It is told rightly ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_bars_tell_who_held_it_after_every_step(name: str) -> None:
    search, story = searched(name), searched(name).story
    told = [{bar.lane for bar in story.bars if bar.begins <= here and (bar.ends is None or here < bar.ends)}
            for here in range(len(story.moments))]  # fmt: skip
    held = [
        {who for who, client in zip(search.lab.protocol.clients, state.clients, strict=True) if client.holds}
        for state in search.path
    ]
    assert without_repetition(told) == without_repetition([set(), *held] if not told[0] else held)


def without_repetition(those: list[set[str]]) -> list[set[str]]:
    return [each for place, each in enumerate(those) if place == 0 or each != those[place - 1]]


@pytest.mark.parametrize("name", NAMES)
def test_every_moment_and_every_arrow_has_its_lanes(name: str) -> None:
    story = searched(name).story
    lanes = {lane.name: lane.part for lane in story.lanes}
    assert len(lanes) == len(story.lanes)
    for moment in story.moments:
        assert moment.lane in lanes
        assert moment.text
        assert moment.text == " ".join(moment.text.split())
        for arrow in moment.arrows:
            assert lanes[arrow.end] == "node"
            assert lanes[arrow.start] in ("client", "node")
            assert arrow.start != arrow.end


@pytest.mark.parametrize("name", NAMES)
def test_seconds_that_are_told_to_pass_are_those_that_have_passed(name: str) -> None:
    search, story = searched(name), searched(name).story
    passed = sum(act.seconds for act, _ in search.found.trail if act.kind == "passes")
    told = sum(int(moment.text.split(" s pass")[0]) for moment in story.moments if moment.sign == "time")
    assert passed == told == story.moments[-1].at
    moments = [moment.at for moment in story.moments if moment.at is not None]
    assert moments == sorted(moments)
    told_alone = [moment.sign == "time" and ";" not in moment.text for moment in story.moments]
    assert not any(one and other.sign == "time" for one, other in zip(told_alone, story.moments[1:], strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_every_request_of_the_history_is_told_with_its_answer(name: str) -> None:
    search, story = searched(name), searched(name).story
    asked = [act for act, _ in search.found.trail if act.ask is not None]
    told = [
        moment
        for moment in story.moments
        if moment.lane in search.lab.protocol.clients and moment.arrows and moment.brief != "all at once"
    ]
    assert len(asked) == len(told)
    for act, moment in zip(asked, told, strict=True):
        assert str(act.ask) in moment.text
        assert moment.lane == act.who
        reply = moment.text.partition(" → ")[2]
        assert reply
        assert ("no answer" in reply) == bool(act.unreached)
        assert ("the answer is lost" in reply) == (act.kind == "asks in vain")
        assert sum(arrow.is_lost for arrow in moment.arrows) == len(act.unreached)


# It is the same every time --------------------------------------------------------------------------------------------

TELL = """
import json, sys
from gripfast_lab.entries import BY_NAME
from gripfast_lab.verdicts import judged
print(json.dumps({name: repr(judged(BY_NAME[name]).story) for name in sys.argv[1:]}))
"""


@pytest.mark.parametrize("name", CHEAP)
def test_searching_twice_finds_the_same(name: str) -> None:
    assert judged(BY_NAME[name]).story == judged(BY_NAME[name]).story == searched(name).story


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_another_process_finds_the_same(hash_seed: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TELL, *CHEAP],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert json.loads(ended.stdout) == {name: repr(searched(name).story) for name in CHEAP}
