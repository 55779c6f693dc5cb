"""What an operator sees of locks that five nodes have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from core.scripted_nodes import NAMES, ScriptedNodes, down, info
from gripfast.core.ports import LockInfo, Page, Unreachable
from gripfast.core.redlock.nodes import Answer, Ballot, Each, Inspect, Names, Request, Scan
from gripfast.core.redlock.records import Records
from gripfast.core.redlock.store import RedlockStore
from gripfast.runtime.blocking import drive


def inspected(*answers: Answer) -> Any:
    nodes = ScriptedNodes()
    nodes.will_answer(*answers)
    return drive(RedlockStore(nodes, Records()).inspect("job"))


def test_a_lock_is_shown_if_its_owner_has_a_majority() -> None:
    shown = inspected(info("a", token=7, waiters=1), info("a", token=9, waiters=2), info("a", token=8), None, None)
    assert isinstance(shown, LockInfo)
    assert (shown.owner, shown.token, shown.waiters) == ("a", 9, 2)


def test_a_few_nodes_that_somebody_has_are_no_lock() -> None:
    assert inspected(info("a"), info("a"), info("b"), None, None) is None


def test_a_lock_lasts_for_as_long_as_a_majority_has_it() -> None:
    shown = inspected(*[info("a", expires_in=seconds) for seconds in (5.0, 1.0, 3.0, 2.0)], None)
    assert shown.expires_in == pytest.approx(2.0)


def test_a_lock_is_shown_though_two_nodes_are_down() -> None:
    assert inspected(down(0), info("a"), info("a"), info("a"), down(4)).owner == "a"


def test_without_a_majority_nobody_can_say_who_has_it() -> None:
    answer = inspected(down(0), info("a"), info("a"), down(3), down(4))
    assert isinstance(answer, Unreachable)
    assert set(answer.error.nodes) == set(NAMES)


# Lists --------------------------------------------------------------------------------------------------------------


class Shelves(ScriptedNodes):
    """Nodes that have locks, each in pages of two; those who are down answer nothing."""

    def __init__(self, *held: Sequence[str], down: Sequence[int] = ()) -> None:
        super().__init__()
        self.held = [sorted(names) for names in held]
        self.down = set(down)
        self.down_until_asked = False

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        for node, request in enumerate(requests):
            if request is not None and ballot.add(node, self._answer(node, request)):
                return

    def _answer(self, node: int, request: Request) -> Answer:
        if node in self.down:
            if self.down_until_asked:
                self.down.discard(node)
            return down(node)
        if isinstance(request, Each):
            return [self._answer(node, single) for single in request.requests]
        if isinstance(request, Inspect):
            return info(f"owner of {request.name}") if request.name in self.held[node] else None
        assert isinstance(request, Scan)
        start = int(request.cursor)
        names = [name for name in self.held[node] if name.startswith(request.prefix)]
        return Names(str(start + 2) if start + 2 < len(names) else "0", names[start : start + 2])


def listed(nodes: ScriptedNodes, prefix: str = "") -> list[str]:
    store, after, owners = RedlockStore(nodes, Records()), None, []
    while True:
        page = drive(store.page(prefix, after))
        assert isinstance(page, Page)
        owners += [each.owner.removeprefix("owner of ") for each in page.infos]
        after = page.after
        if after is None:
            return owners


ALL = ["a", "b", "c", "d", "e", "f", "g"]


def test_every_lock_is_listed_once() -> None:
    assert sorted(listed(Shelves(*[ALL] * 5))) == ALL


def test_a_lock_is_listed_whichever_majority_has_it() -> None:
    nodes = Shelves(["x", "y"], ["x", "y", "z"], ["x", "z"], ["z", "y"], [])
    assert sorted(listed(nodes)) == ["x", "y", "z"]


def test_what_a_minority_has_is_not_listed() -> None:
    assert listed(Shelves(["x"], ["x"], [], [], [])) == []


def test_a_list_is_of_names_with_its_prefix() -> None:
    assert sorted(listed(Shelves(*[["job a", "job b", "task"]] * 5), prefix="job ")) == ["job a", "job b"]


@pytest.mark.parametrize("gone", [[0], [2], [4], [0, 1], [0, 4]])
def test_a_list_is_complete_though_nodes_are_down(gone: list[int]) -> None:
    assert sorted(listed(Shelves(*[ALL] * 5, down=gone))) == ALL


def test_a_lock_that_three_nodes_have_is_listed_though_another_is_down() -> None:
    assert listed(Shelves(["x"], [], ["x"], ["x"], [], down=[1])) == ["x"]


def test_a_list_is_complete_though_a_node_comes_back_while_it_is_made() -> None:
    nodes = Shelves(*[ALL] * 5, down=[0])
    nodes.down_until_asked = True
    assert sorted(listed(nodes)) == ALL


@pytest.mark.parametrize("gone", [[0, 1, 2], [2, 3, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("names", [ALL, []])
def test_without_a_majority_there_is_no_list_not_even_an_empty_one(gone: list[int], names: list[str]) -> None:
    store, after = RedlockStore(Shelves(*[names] * 5, down=gone), Records()), None
    for _ in range(20):
        page = drive(store.page("", after))
        if isinstance(page, Unreachable):
            assert set(page.error.nodes) == set(NAMES)
            return
        after = page.after
        assert after is not None, "the list ended as if all were well"
