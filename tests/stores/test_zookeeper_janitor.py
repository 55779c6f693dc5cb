"""Names that nobody uses are cleared away as fast as they are made, and those in use are left alone."""

import contextlib
import math
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import gripfast
from gripfast.stores.zookeeper import janitor
from gripfast.stores.zookeeper.janitor import FIRST_SAMPLE, IDLE, Janitor
from gripfast.stores.zookeeper.protocol import MARK, write_note
from support.both_colours import both_colours, each, staged
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import auntil, until
from support.zookeeper_servers import ZooKeeperServer, new_root, zookeeper_server

NAMES = 130
"""More than a few rounds take."""


@pytest.fixture(scope="module")
def server() -> ZooKeeperServer:
    return zookeeper_server()


@pytest.fixture
def kazoo(server: ZooKeeperServer) -> Iterator[KazooClient]:
    with server.client() as client:
        yield client


@staged
async def test_names_are_cleared_away_however_many_are_made(
    server: ZooKeeperServer, kazoo: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above a hundred a minute none ever was. Now the client need not even release anything more for it."""
    monkeypatch.setattr(janitor, "IDLE", 0.3)
    root = new_root()
    async with both_colours(server.url_with(root=root), ttl=20) as actors:
        held = await each(actors, lambda actor: actor.acquire(f"held, {actor.colour}"))
        await each(actors, lambda actor: _use_many(actor, NAMES))
        await auntil(lambda: len(set(kazoo.get_children(root)) - {"%layout"}) == len(held), within=20)
        assert all(lease.held for lease in held)


async def _use_many(actor: gripfast.Client, count: int) -> None:
    for number in range(count):
        await actor.release(await actor.acquire(f"order {number}, {actor.colour}"))  # type: ignore[attr-defined]


# One name at a time, with time as it is told --------------------------------------------------------------------------


class Place:
    """A name, and a janitor of its own for it."""

    def __init__(self, kazoo: KazooClient) -> None:
        self.kazoo = kazoo
        self.root = new_root()
        self.path = self.made("job")
        self.janitor = self.janitor_of(kazoo)

    def janitor_of(self, kazoo: KazooClient) -> Janitor:
        """One that has used the name, and looks at no others unless the test says so."""
        new = Janitor(kazoo)
        new.used.put((self.path, 0.0))
        new.tick(0.0)
        assert 0.0 <= new._samples_at <= FIRST_SAMPLE
        new._samples_at = math.inf
        return new

    def made(self, name: str) -> str:
        self.kazoo.create(f"{self.root}/{name}", MARK, makepath=True)
        return f"{self.root}/{name}"

    def passes(self, *moments: float) -> None:
        """The janitor looks at each of these, and has its answers."""
        for moment in moments:
            self.janitor.tick(moment)
            until(self.is_answered)

    def is_answered(self) -> bool:
        listing = self.janitor._listing
        return all(look[-1].is_answered for look in self.janitor._looks) and (listing is None or listing.is_answered)

    def is_there(self, path: str = "") -> bool:
        self.kazoo.sync(self.root)
        return bool(self.kazoo.exists(path or self.path))

    def touch(self) -> None:
        self.kazoo.delete(self.kazoo.create(f"{self.path}/somebody", ephemeral=True))


@pytest.fixture
def place(kazoo: KazooClient) -> Place:
    return Place(kazoo)


def test_a_name_goes_after_two_looks_at_which_it_was_idle(place: Place) -> None:
    place.passes(IDLE - 1, IDLE, IDLE + 1, 2 * IDLE)
    assert place.is_there()
    place.passes(2 * IDLE + 1, 2 * IDLE + 2)
    until(lambda: not place.is_there())


def test_a_name_that_is_used_again_is_not_looked_at(place: Place) -> None:
    for number in range(10):
        place.janitor.used.put((place.path, number * IDLE / 2))
        place.janitor.tick(number * IDLE / 2)
        assert not place.janitor.is_busy
    assert len(place.janitor._idle) == 1


def test_a_name_that_others_have_used_meanwhile_is_left_to_them(place: Place) -> None:
    place.passes(IDLE, IDLE + 1)
    place.touch()
    place.passes(2 * IDLE + 1, 2 * IDLE + 2, 4 * IDLE)
    assert place.is_there()
    assert not place.janitor._idle


def test_a_name_that_somebody_has_or_waits_for_stays(place: Place) -> None:
    place.passes(IDLE, IDLE + 1)
    place.kazoo.create(f"{place.path}/somebody", ephemeral=True)
    place.passes(2 * IDLE + 1, 2 * IDLE + 2)
    assert place.is_there()


def test_a_name_that_we_have_not_made_stays(place: Place) -> None:
    place.kazoo.set(place.path, b"another's")
    place.passes(IDLE, IDLE + 1, 2 * IDLE + 1, 2 * IDLE + 2)
    assert place.is_there()


def test_a_name_with_a_note_goes_like_any_other(place: Place) -> None:
    place.kazoo.set(place.path, write_note("somebody", "deploy of v2"))
    place.passes(IDLE, IDLE + 1, 2 * IDLE + 1, 2 * IDLE + 2)
    until(lambda: not place.is_there())


@pytest.mark.parametrize("is_old", [True, False])
def test_an_old_note_goes_from_a_name_in_use(place: Place, is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "NOTE_KEPT", -60_000 if is_old else 60_000)
    noted = write_note("somebody", "deploy of v2")
    place.kazoo.set(place.path, noted)
    place.kazoo.create(f"{place.path}/somebody", ephemeral=True)
    place.passes(IDLE, IDLE + 1)
    until(lambda: place.kazoo.get(place.path)[0] == (MARK if is_old else noted))
    assert place.is_there()


def test_what_the_dead_have_left_goes_when_a_sample_of_all_names_has_found_it(place: Place) -> None:
    left = [place.made(f"left {number}") for number in range(3)]
    later = place.janitor._samples_at = 4 * IDLE
    place.passes(IDLE, IDLE + 1, 2 * IDLE + 1, 2 * IDLE + 2, later - 1)
    assert all(place.is_there(path) for path in left), "nobody has looked at all names yet"
    place.passes(later, later + 1, later + 2, later + 3, later + IDLE + 3, later + IDLE + 4)
    until(lambda: not any(place.is_there(path) for path in left))


def test_samples_are_rare_where_there_is_nothing_to_find(place: Place) -> None:
    asked = []
    place.janitor._samples_at = 0.0
    for minute in range(24 * 60):
        place.passes(minute * 60.0)
        asked += [minute] if place.janitor._listing else []
    assert len(asked) <= 24 + 10


def test_a_round_that_is_cut_off_is_made_again(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    place = Place(kazoo)
    with Proxy((HOST, server.port)) as proxy, contextlib.ExitStack() as stack:
        cut_off = KazooClient(hosts=f"{HOST}:{proxy.port}", timeout=20)
        cut_off.start(timeout=10)
        stack.callback(cut_off.close)
        stack.callback(cut_off.stop)
        place.janitor = place.janitor_of(cut_off)
        proxy.hold("replies")
        place.janitor.tick(IDLE)
        proxy.cut()
        until(place.is_answered)
        proxy.let_go()
        until(lambda: cut_off.connected, within=10)
        place.passes(IDLE + 1, 2 * IDLE + 1, 2 * IDLE + 2, 3 * IDLE + 2, 3 * IDLE + 3)
        until(lambda: not place.is_there())
