"""Which names of semaphores and read/write locks the janitor deletes: the limit of a semaphore is remembered."""

import math
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from gripfast.core.ports import RW_LIMIT, Kind
from gripfast.stores.zookeeper import janitor, permit_protocol
from gripfast.stores.zookeeper.janitor import IDLE, Janitor
from support.waiting import until
from support.zookeeper_servers import new_root, zookeeper_server

LATER = 10 * IDLE
LOOKS = (IDLE, IDLE + 1, 2 * IDLE + 1, 2 * IDLE + 2)
SAMPLES = (LATER, LATER + 1, LATER + 2, LATER + 3, LATER + IDLE + 3, LATER + IDLE + 4)


@pytest.fixture(scope="module")
def kazoo() -> Iterator[KazooClient]:
    with zookeeper_server().client() as kazoo:
        yield kazoo


class Name:
    """One that the janitor's client has used, and nobody uses now."""

    def __init__(self, kazoo: KazooClient, kind: Kind) -> None:
        self._kazoo = kazoo
        self.path = permit_protocol.parent(new_root(), kind, "api")
        data = permit_protocol.write_name(3 if kind == "semaphore" else RW_LIMIT)
        kazoo.create(self.path, data, makepath=True)
        self._janitor = Janitor(kazoo)
        self._janitor.used.put((self.path, 0.0))
        self._janitor.tick(0.0)
        self._janitor._samples_at = math.inf

    def passes(self, *moments: float) -> None:
        for moment in moments:
            self._janitor.tick(moment)
            until(self._is_answered)

    def samples(self) -> None:
        self._janitor._samples_at = LATER
        self.passes(*SAMPLES)

    def _is_answered(self) -> bool:
        listing = self._janitor._listing
        return all(look[-1].is_answered for look in self._janitor._looks) and (listing is None or listing.is_answered)

    def is_there(self) -> bool:
        self._kazoo.sync(self.path)
        return bool(self._kazoo.exists(self.path))


def test_the_name_of_a_read_write_lock_goes_as_that_of_a_lock(kazoo: KazooClient) -> None:
    name = Name(kazoo, "rwlock")
    name.passes(*LOOKS)
    until(lambda: not name.is_there())


def test_the_limit_of_an_idle_semaphore_is_remembered(kazoo: KazooClient) -> None:
    name = Name(kazoo, "semaphore")
    name.passes(*LOOKS)
    name.samples()
    assert name.is_there()


def test_a_semaphore_that_nobody_has_used_for_a_day_goes(kazoo: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "LIMIT_KEPT", -60_000)
    name = Name(kazoo, "semaphore")
    name.passes(*LOOKS)
    assert name.is_there(), "its last lease may have ended just now"
    name.samples()
    until(lambda: not name.is_there())


def test_a_semaphore_that_somebody_waits_for_stays(kazoo: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "LIMIT_KEPT", -60_000)
    name = Name(kazoo, "semaphore")
    kazoo.create(f"{name.path}/a__wait1__", ephemeral=True, sequence=True)
    name.samples()
    assert name.is_there()
    assert kazoo.get(name.path)[0] == permit_protocol.write_name(3)
