"""Who waits in one client: only the first of a name queries, and whoever is first is told so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast import StoreUnavailable
from gripfast.core.ports import Taken, unreachable
from gripfast.stores.inboxes import BlockingInbox, Nothing
from gripfast.stores.sql.queues import Queues

PACE = 5.0


def is_told(inbox: BlockingInbox) -> bool:
    """To ask; once for each time."""
    return not isinstance(inbox.take(0.0), Nothing)


class Crowd:
    """Waiters for one name, whose inboxes live here."""

    def __init__(self, *owners: str) -> None:
        self.queues = Queues()
        self.inboxes: dict[str, BlockingInbox] = {}
        for owner in owners:
            self.comes(owner)

    def comes(self, owner: str, is_ahead: bool = False) -> bool:
        """Whether it is to ask."""
        inbox = self.inboxes.setdefault(owner, BlockingInbox())
        return self.queues.join("job", owner, inbox, is_ahead) is not None

    def dies(self, owner: str) -> None:
        del self.inboxes[owner]

    def told(self) -> set[str]:
        return {owner for owner, inbox in self.inboxes.items() if is_told(inbox)}


@pytest.fixture
def crowd() -> Crowd:
    return Crowd("alice", "bob", "carol")


def test_only_the_first_in_line_asks(crowd: Crowd) -> None:
    assert [crowd.comes(owner) for owner in ("alice", "bob", "carol")] == [True, False, False]


def test_names_have_lines_of_their_own(crowd: Crowd) -> None:
    inbox = BlockingInbox()
    assert crowd.queues.join("another job", "dave", inbox) is not None


def test_the_next_is_told_when_the_first_leaves(crowd: Crowd) -> None:
    crowd.queues.leave("job", "alice")
    assert crowd.told() == {"bob"}
    assert crowd.comes("bob")


def test_nobody_is_told_when_another_than_the_first_leaves(crowd: Crowd) -> None:
    crowd.queues.leave("job", "bob")
    assert crowd.told() == set()


def test_a_dead_one_is_passed_over(crowd: Crowd) -> None:
    crowd.dies("alice")
    crowd.queues.wake("job")
    assert crowd.told() == {"bob"}
    assert crowd.comes("bob")


def test_the_dead_behind_the_first_are_not_told_in_place_of_the_living(crowd: Crowd) -> None:
    crowd.dies("bob")
    crowd.queues.leave("job", "alice")
    assert crowd.told() == {"carol"}


def test_a_line_is_forgotten_with_the_last_in_it(crowd: Crowd) -> None:
    for owner in ("bob", "alice", "carol"):
        crowd.queues.leave("job", owner)
    assert "job" not in crowd.queues
    assert crowd.queues.goes_ahead("job", "dave")


def test_all_are_told_when_something_changes_for_everyone(crowd: Crowd) -> None:
    crowd.queues.wake_all()
    assert crowd.told() == {"alice", "bob", "carol"}


def test_a_channel_wakes_the_first_in_the_line_of_its_name(crowd: Crowd) -> None:
    crowd.queues.names["channel"] = "job"
    crowd.queues.wake_channel("channel")
    crowd.queues.wake_channel("unknown")
    assert crowd.told() == {"alice"}


# Going ahead ----------------------------------------------------------------------------------------------------------


def test_one_at_a_time_goes_ahead_of_a_line_that_does_not_exist() -> None:
    queues = Queues()
    assert queues.goes_ahead("job", "alice")
    assert not queues.goes_ahead("job", "bob")
    assert queues.goes_ahead("job", "alice")


def test_nobody_goes_ahead_of_those_who_wait(crowd: Crowd) -> None:
    assert not crowd.queues.goes_ahead("job", "dave")


def test_whoever_came_meanwhile_asks_when_the_one_ahead_is_granted_it() -> None:
    crowd = Crowd()
    assert crowd.queues.goes_ahead("job", "alice")
    crowd.comes("bob")
    crowd.queues.leave("job", "alice")
    assert crowd.told() == {"bob"}


def test_whoever_went_ahead_stands_before_those_who_came_meanwhile() -> None:
    crowd = Crowd()
    assert crowd.queues.goes_ahead("job", "alice")
    crowd.comes("bob")
    assert crowd.comes("alice", is_ahead=True)
    assert not crowd.comes("bob")


def test_one_who_died_ahead_is_in_nobodys_way() -> None:
    crowd = Crowd()
    assert crowd.queues.goes_ahead("job", "alice")
    crowd.comes("bob")
    crowd.queues.leave("job", "alice")  # by the ledger's reader
    assert crowd.told() == {"bob"}
    crowd.queues.leave("job", "bob")
    assert crowd.queues.goes_ahead("job", "carol")


# What is known behind the first ---------------------------------------------------------------------------------------


def test_those_behind_are_told_what_the_first_was_told_at_their_own_pace(crowd: Crowd) -> None:
    crowd.queues.answered("job", "alice", Taken(None, 7, 0.01))
    assert crowd.queues.behind("job", PACE) == Taken(None, 7, PACE)


def test_those_behind_are_told_that_the_engine_can_not_be_asked(crowd: Crowd) -> None:
    """It was told as "taken": they would have waited for ever, or given up with a wrong reason."""
    down = unreachable(StoreUnavailable("down"))
    crowd.queues.answered("job", "alice", down)
    assert crowd.queues.behind("job", PACE) is down


# In any order ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["comes", "leaves", "dies"]), st.sampled_from("abcde")), max_size=40))
def test_whoever_is_first_among_the_living_asks_or_is_told_to(steps: list[tuple[str, str]]) -> None:
    crowd, order, asking = Crowd(), list[str](), set[str]()
    for step, owner in steps:
        if step == "comes":
            order += [owner] if owner not in order else []
            if crowd.comes(owner):
                asking.add(owner)
        elif owner in order and step == "leaves":
            order.remove(owner)
            crowd.queues.leave("job", owner)
            crowd.inboxes.pop(owner)
            asking.discard(owner)
        elif owner in order and len(order) > 1 and order[0] != owner:
            order.remove(owner)
            crowd.dies(owner)
            asking.discard(owner)
        asking |= crowd.told()
        assert asking <= set(order[:1]), "two of one client asked"
        assert set(order[:1]) <= asking, "nobody asks for those who wait"
    for owner in order:
        crowd.queues.leave("job", owner)
    assert "job" not in crowd.queues
