"""Whatever is reported, twice, too late or not at all: each claim is told from its beginning to one end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast import ClientClosed, ConfigurationError, Event, StoreUnavailable
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ports import unreachable
from gripfast.core.stories import Report, Stories, Story
from gripfast.testing.observing import broken_stories


class Teller:
    """Stories on a clock and a queue that the test has in its hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.has_room = True
        self.queue: list[Report] = []
        self.events: list[Event] = []
        self.stories = Stories(
            "memory://", self.queue.append, lambda: self.has_room, lambda: self.now, lambda: self.now + 1e9
        )

    def claim(self, name: str = "job", ttl: float = 10.0) -> LeaseState:
        state = LeaseState(Want(name, name, ttl, True, None, None, "jobs"), f"owner of {name}")
        self.stories.claimed(state)
        return state

    def granted(self, name: str = "job") -> LeaseState:
        state = self.claim(name)
        state.grant(7, state.ttl, self.now, self.now)
        if state.story is not None:
            state.story.granted(state)
        return state

    def read(self) -> list[str]:
        """Takes what is queued; the kinds of all that was told."""
        while self.queue:
            if (event := self.stories.take(self.queue.pop(0))) is not None:
                self.events.append(event)
        return [event.kind for event in self.events]

    def close(self) -> list[str]:
        self.read()
        self.events += self.stories.close()
        return [event.kind for event in self.events]

    @property
    def last(self) -> Event:
        return self.events[-1]


@pytest.fixture
def teller() -> Teller:
    return Teller()


def story(state: LeaseState) -> Story:
    assert state.story is not None
    return state.story


def test_a_release_is_told_with_its_times(teller: Teller) -> None:
    state = teller.claim()
    teller.now += 2.0
    state.grant(7, 10.0, teller.now, teller.now)
    story(state).granted(state)
    teller.now += 3.0
    story(state).released()
    assert teller.read() == ["claimed", "granted", "released"]
    assert [(event.at, event.waited, event.held, event.token) for event in teller.events] == [
        (100.0, 0.0, 0.0, None),
        (102.0, 2.0, 0.0, 7),
        (105.0, 2.0, 3.0, 7),
    ]
    assert {(event.name, event.group, event.owner, event.store) for event in teller.events} == {
        ("job", "jobs", "owner of job", "memory://")
    }
    assert teller.last.wall == teller.last.at + 1e9


def test_each_field_of_an_event_has_the_value_that_its_name_promises(teller: Teller) -> None:
    """Events are made by position, because callers wait for them: no two fields may change places."""
    state, error = teller.granted(), StoreUnavailable("planted")
    told, teller.stories.engine = story(state), "redis"
    told.claimed_at, told.granted_at, told.ttl, told.queued = 80.0, 83.0, 11.0, True
    told.trace, told.holder_trace = "ours", "theirs"
    event = told.event("unreachable", 91.0, margin=6.0, reason="taken", error=error, request="renew")
    assert event == Event(
        kind="unreachable",
        name="job",
        group="jobs",
        owner="owner of job",
        store="memory://",
        engine="redis",
        at=91.0,
        wall=teller.now + 1e9,
        ttl=11.0,
        token=7,
        waited=3.0,
        held=8.0,
        margin=6.0,
        reason="taken",
        error=error,
        request="renew",
        queued=True,
        trace="ours",
        holder_trace="theirs",
    )
    assert len(set(event)) == len(event), "two fields with the same value: it would not be noticed"


def test_an_observer_can_not_change_an_event_that_others_get(teller: Teller) -> None:
    teller.granted()
    teller.read()
    with pytest.raises(AttributeError):
        teller.last.token = 8


def test_the_first_end_counts(teller: Teller) -> None:
    state = teller.granted()
    story(state).lost("expired")
    story(state).released()
    story(state).lost("taken")
    assert teller.read() == ["claimed", "granted", "lost"]
    assert teller.last.reason == "expired"


def test_a_release_that_finds_the_lease_lost_is_told_as_a_loss(teller: Teller) -> None:
    state = teller.granted()
    story(state).released("taken")
    assert teller.read() == ["claimed", "granted", "lost"]
    assert teller.last.reason == "taken"


def test_a_renewal_is_told_with_what_was_left(teller: Teller) -> None:
    state = teller.granted()
    teller.now += 4.0
    left = state.remaining(teller.now)
    story(state).renewal(state, None, teller.now)
    assert teller.read() == ["claimed", "granted", "renewed"]
    assert teller.last.margin == left


def test_the_answer_to_a_renewal_that_came_too_late_is_not_told(teller: Teller) -> None:
    state = teller.granted()
    teller.now += 40.0
    story(state).renewal(state, None, teller.now)
    assert teller.read() == ["claimed", "granted"]


def test_an_unreachable_store_ends_a_claim_and_no_lease(teller: Teller) -> None:
    error = StoreUnavailable("planted")
    state, other = teller.granted(), teller.claim("other")
    story(state).renewal(state, unreachable(error), teller.now)
    story(state).released(unreachable(error))
    story(other).failed(error)
    assert teller.read() == ["claimed", "granted", "claimed", "unreachable", "unreachable", "released", "unreachable"]
    assert [event.request for event in teller.events if event.error] == ["renew", "release", "claim"]
    assert broken_stories(teller.events) == []


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Odd(StoreUnavailable):
    """Of a store in another package."""

    def __init__(self) -> None:
        super().__init__("odd")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreUnavailable("down"), ("unreachable", None, "down")),
        (Odd(), ("unreachable", None, "None")),
        (ClientClosed(), ("refused", "closed", "None")),
        (ConfigurationError("wrong"), ("refused", "error", "wrong")),
        (ZeroDivisionError(), ("refused", "error", "None")),
        (KeyboardInterrupt(), ("refused", "cancelled", "None")),
    ],
)
def test_a_claim_that_fails_is_told_without_the_frames_of_its_error(
    teller: Teller, error: BaseException, told: tuple[str, str | None, str]
) -> None:
    state = teller.claim()
    story(state).failed(raised(error))
    teller.read()
    assert (teller.last.kind, teller.last.reason, str(teller.last.error)) == told
    assert teller.last.error is None or teller.last.error.__traceback__ is None


def test_a_claim_that_dies_was_cancelled(teller: Teller) -> None:
    teller.claim()
    assert teller.read() == ["claimed", "refused"]
    assert teller.last.reason == "cancelled"


def test_a_lease_that_dies_was_dropped(teller: Teller) -> None:
    teller.granted()
    assert teller.read() == ["claimed", "granted", "released"]
    assert teller.last.reason == "dropped"


def test_a_lost_lease_that_dies_before_anybody_tells_of_it_is_told_as_lost(teller: Teller) -> None:
    assert teller.granted().finish("session")
    assert teller.read() == ["claimed", "granted", "lost"]
    assert teller.last.reason == "session"


def test_a_grant_that_was_interrupted_before_it_was_reported_was_none(teller: Teller) -> None:
    state = teller.claim()
    told = story(state)
    told.token, told.granted_at = 7, teller.now
    del state
    assert teller.read() == ["claimed", "refused"]
    assert (teller.last.token, teller.last.held) == (None, 0.0)


def test_closing_ends_what_is_open(teller: Teller) -> None:
    states = [teller.claim("waits"), teller.granted("holds"), teller.granted("lost"), teller.granted("over")]
    states[2].finish("expired")
    story(states[3]).released()
    teller.close()
    ends = {event.name: (event.kind, event.reason) for event in teller.events}
    assert ends == {
        "waits": ("refused", "closed"),
        "holds": ("released", "closed"),
        "lost": ("lost", "expired"),
        "over": ("released", None),
    }
    del states
    assert broken_stories(teller.events) == []
    teller.read()
    assert broken_stories(teller.events) == []


def test_where_there_is_no_room_for_a_claim_none_of_its_story_is_told(teller: Teller) -> None:
    teller.has_room = False
    state = teller.granted()
    assert state.story is None
    assert teller.close() == []


def test_the_end_of_what_was_told_is_told_though_there_is_no_room(teller: Teller) -> None:
    leases = [teller.granted("one"), teller.granted("two")]
    teller.has_room = False
    story(leases[0]).renewal(leases[0], None, teller.now)
    story(leases[0]).released()
    story(leases[1]).lost("expired")
    teller.read()
    assert [event.kind for event in teller.events if event.kind == "renewed"] == []
    assert broken_stories(teller.events) == []


STEPS: dict[str, Callable[[Story, LeaseState], object]] = {
    "granted": lambda told, state: told.granted(state),
    "refused": lambda told, state: told.refused(),
    "failed": lambda told, state: told.failed(StoreUnavailable("planted")),
    "cancelled": lambda told, state: told.failed(KeyboardInterrupt()),
    "renewed": lambda told, state: told.renewal(state, None, 100.0),
    "not renewed": lambda told, state: told.renewal(state, unreachable(StoreUnavailable("planted")), 100.0),
    "released": lambda told, state: told.released(),
    "not released": lambda told, state: told.released(unreachable(StoreUnavailable("planted"))),
    "lost": lambda told, state: told.lost("expired"),
    "finished": lambda told, state: state.finish("expired"),
}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*STEPS, "dies", "is read"]))))
def test_whatever_is_reported_in_whatever_order_each_claim_has_one_end(steps: list[tuple[int, str]]) -> None:
    teller = Teller()
    states = {number: teller.claim(str(number)) for number in range(4)}
    for state in states.values():
        state.grant(7, state.ttl, teller.now, teller.now)
    for number, step in steps:
        if step == "is read":
            teller.read()
        elif step == "dies":
            states.pop(number, None)
        elif number in states:
            STEPS[step](story(states[number]), states[number])
    teller.read()
    assert broken_stories(teller.events, may_be_open=True) == []
    teller.close()
    assert len({event.owner for event in teller.events}) == 4
    assert broken_stories(teller.events) == []


@pytest.mark.parametrize(
    "kinds",
    [
        ["claimed"],
        ["claimed", "granted"],
        ["granted", "released"],
        ["claimed", "refused", "refused"],
        ["claimed", "granted", "released", "lost"],
        ["claimed", "released"],
    ],
)
def test_a_planted_story_that_is_broken_is_found(teller: Teller, kinds: list[str]) -> None:
    state = teller.claim()
    events = [story(state).event(kind, 100.0) for kind in kinds]  # type: ignore[arg-type]
    assert len(broken_stories(events)) == 1
