"""The disk of etcd's leader stalls: whoever holds a lock keeps it, or has stopped believing before the next is granted.

GRIPFAST_CHAOS=long makes 50 stalls, with holders on the leader and on a follower in each; `-s` shows the figures.
"""

from collections.abc import Iterator

import pytest

from chaos.etcd_stalls import HONEST, WRONG, Seen, Stalls
from chaos.stage import LONG
from support.etcd_servers import Trio, version

STALLS = 50 if LONG else 1
MORE = 3
"""Stalls at most, for some alone: a wrong lock may just have renewed in vain when the next is granted, and a machine
can be too busy for an honest one to be renewed in time."""
MOBILE = ("mobile", "follower")
"""They reach a majority throughout."""
IS_FAULTY = version() < (3, 5)
"""In 3.4.23 a leader that was replaced answers keep-alives, and revokes leases; in 3.5.16 it does neither."""

pytestmark = pytest.mark.timeout(240 + 30 * STALLS)


@pytest.fixture(scope="module")
def stalls(request: pytest.FixtureRequest) -> Iterator[Stalls]:
    """All that happens does so here; the tests judge it."""
    with Trio() as trio:
        stalls = Stalls(trio, request.node.name)
        for _ in range(STALLS):
            stalls.one()
        for _ in range(MORE):
            if IS_FAULTY and not all(any(map(is_too_long, stalls.seen[role])) for role in WRONG):
                stalls.one(WRONG)
            if not all(any(each.kept for each in stalls.seen[role]) for role in MOBILE):
                stalls.one(MOBILE)
        print(f"\n{stalls.report()}")
        yield stalls


@pytest.mark.parametrize("role", HONEST)
def test_nobody_believes_when_the_next_is_granted(stalls: Stalls, role: str) -> None:
    assert [each for each in stalls.seen[role] if each.believed or each.violations] == []


def test_who_is_connected_only_to_the_leader_makes_way(stalls: Stalls) -> None:
    assert all(each.was_next and not each.kept for each in stalls.seen["stuck"])


@pytest.mark.parametrize("role", MOBILE)
def test_who_reaches_a_majority_keeps_the_lock(stalls: Stalls, role: str) -> None:
    """In a long run, each time that there was a leader before its lease was over."""
    kept = [each.kept or not each.could_keep for each in stalls.seen[role]]
    assert all(kept) if LONG else any(kept), stalls.report()
    assert any(each.kept for each in stalls.seen[role])


@pytest.mark.skipif(not IS_FAULTY, reason="this version makes even these locks hold")
@pytest.mark.parametrize("role", WRONG)
def test_it_is_noticed_if_keep_alives_are_believed(stalls: Stalls, role: str) -> None:
    assert any(map(is_too_long, stalls.seen[role]))


def is_too_long(seen: Seen) -> bool:
    return seen.believed > 0.0 and any(each.startswith("overlap") for each in seen.violations)
