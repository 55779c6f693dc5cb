"""Seeds of the simulation as stories."""

import xml.etree.ElementTree as ET

import pytest

from gripfast_lab.pictures import svg, terminal
from gripfast_lab.pictures.layout import Layout
from gripfast_lab.seeds import FAULTS, SIGHTS, story_of, story_of_seed
from gripfast_lab.sim.checks import RULES, violations
from gripfast_lab.sim.faults import KINDS
from gripfast_lab.sim.history import ANY, WORLD, Event
from gripfast_lab.sim.runner import mutants, ran_seed, scenarios
from gripfast_lab.story import Bar, Story
from sim.events import asked, event, granted, held, life, lost, over

pytestmark = pytest.mark.in_turn(2)


def told(*history: Event, nodes: tuple[str, ...] = ("node",)) -> Story:
    return story_of("s", "A story", history, violations(history), nodes)


def fault(at: float, who: str, note: str, until: float = 0.0) -> Event:
    return Event(at, who, ANY, "fault", until=until, note=note)


def test_every_fault_of_the_simulation_can_be_told() -> None:
    deaths = {"process killed", "machine gone"}
    assert set(FAULTS) == set(KINDS) - deaths


def test_every_sight_is_about_a_rule() -> None:
    assert set(SIGHTS) <= set(RULES)


def test_holds_last_from_the_grant_to_the_release() -> None:
    story = told(*life(0, "p/a", 1, 5), *life(6, "q/a", 2, 9))
    assert [moment.text for moment in story.moments] == [
        "p/a is granted 'job' with token 1",
        "p/a releases it",
        "q/a is granted 'job' with token 2",
        "q/a releases it",
    ]
    assert story.bars == (Bar("p/a", 0, 1, 1), Bar("q/a", 2, 3, 2))
    assert [(lane.name, lane.part) for lane in story.lanes] == [("p/a", "client"), ("q/a", "client"), ("node", "node")]
    assert story.broken is None


def test_that_somebody_waits_is_told_where_something_happens_meanwhile() -> None:
    story = told(asked(2, "q/a"), *life(0, "p/a", 1, 5), granted(6, "q/a", 2), *over(7, "q/a"))
    assert [moment.text for moment in story.moments][:3] == [
        "p/a is granted 'job' with token 1",
        "q/a requests 'job' for 10 s",
        "p/a releases it",
    ]


def test_a_hold_ends_with_its_deadline_a_loss_or_a_death() -> None:
    story = told(
        *[asked(0, "p/a"), granted(1, "p/a", 1), event(30, "p/a", "released")],
        *[asked(40, "p/b"), granted(41, "p/b", 2), lost(50, "p/b")],
        *[asked(60, "p/a"), granted(61, "p/a", 3), held(62, "p/a", 3), event(63, "p/", "died", name=ANY)],
    )
    ends = [story.moments[bar.ends or 0].text for bar in story.bars]
    assert ends == ["the deadline of p/a passes", "p/b is notified of the loss (expired)", "p/a dies"]
    assert [moment.text for moment in story.moments].count("p/b dies") == 1


def test_an_overlap_is_where_the_checker_found_it() -> None:
    story = told(*life(0, "p/a", 1, 5), *life(3, "q/a", 2, 6))
    assert story.broken is not None
    assert (story.broken.rule, story.broken.lanes) == ("overlap", ("p/a", "q/a"))
    (overlap,) = Layout(story).overlaps
    assert [story.moments[place].text for place in (overlap.begins, overlap.ends)] == [
        "q/a is granted 'job' with token 2",
        "p/a releases it",
    ]


def test_what_came_after_the_rule_was_broken_is_left_out() -> None:
    story = told(*life(0, "p/a", 1, 5), *life(3, "q/a", 2, 6), *life(10, "r/a", 3, 12))
    assert "r/a" not in [lane.name for lane in story.lanes]


def test_other_locks_are_left_out_of_a_failing_story() -> None:
    other = [each._replace(name="other", who="o/a") for each in life(0, "o/a", 1, 5)]
    story = told(*other, *life(0, "p/a", 1, 5), *life(3, "q/a", 2, 6))
    assert "o/a" not in {moment.lane for moment in story.moments}


def test_a_pause_of_a_process_is_one_of_all_its_lanes() -> None:
    story = told(*life(0, "p/a", 1, 5), *life(6, "p/b", 2, 9), fault(3, "p", "process paused", until=4))
    assert [(each.kind, each.span.lane) for each in Layout(story).absences] == [("paused", "p/a"), ("paused", "p/b")]


def test_a_fault_of_some_nodes_is_drawn_at_these() -> None:
    crash = fault(3, WORLD, "memory lost n1 n2", until=4)
    story = told(*life(0, "p/a", 1, 5), crash, nodes=("n0", "n1", "n2"))
    assert [(each.kind, each.span.lane) for each in Layout(story).absences] == [("down", "n1"), ("down", "n2")]


def test_a_fault_between_a_process_and_a_node_is_told_once() -> None:
    story = told(*life(0, "p/a", 1, 5), *life(6, "p/b", 2, 9), fault(3, "p", "cut back", until=4))
    assert [moment.text for moment in story.moments if moment.sign == "cut"] == ["p: cut back for 1 s"]


@pytest.mark.parametrize(
    ("mutant", "seed", "rule"),
    [("no grace", 349, "overlap"), ("token counted", 28, "token"), ("release hands nothing over", 0, "idle")],
)
def test_a_failing_seed_is_drawn(mutant: str, seed: int, rule: str) -> None:
    planted = mutants()[mutant]
    with planted.planted():
        story, found = story_of_seed(seed, planted.scenario)
    assert found[0].rule == rule
    assert story.broken is not None
    assert story.broken.begins is not None
    assert len(story.moments) < 30
    layout = Layout(story)
    assert bool(layout.overlaps) == (rule == "overlap")
    assert bool(layout.wrong_tokens) == (rule == "token")
    assert f"Broken: {rule}" in terminal.drawn(story, 100, colour=False)
    ET.fromstring(svg.drawn(story))


def test_a_seed_that_holds_is_drawn_as_well() -> None:
    story, found = story_of_seed(3, "redis")
    outcome = ran_seed(scenarios()["redis"], 3)
    assert (found, story.broken) == ([], None)
    assert len(story.bars) == outcome.grants
    ET.fromstring(svg.drawn(story))
