"""Two versions of Gripfast on one store, under load: this one, and this one with the number of its layout raised.

Their layouts differ in earnest: the second keeps its locks under other keys, so that the two do not exclude each other.
Whichever comes first, one of them works as if it were alone, and the other is refused and says what to do. A version
that does not look at the number is noticed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chaos.stage import Crew, Stage
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from support.processes import Worker
from support.redis_server import RedisServer
from support.redlock_nodes import redlock_url
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import until
from support.zookeeper_servers import zookeeper_server

NURSERY = Path(__file__).with_name("version_nursery.py")
NUMBERS = {"old": 1, "new": 2}
FIRST = {"old": 0, "new": 10}
"""The number of the first process of each version."""
LOAD: dict[str, Any] = {"threads": 1, "tasks": 2, "keepers": 0, "ttls": (2.0,), "waits": (0.0, 0.02, 0.2, 2.0)}
ORDERS = [("old", "new"), ("new", "old"), None]
"""Who comes first; None if both come at once."""

pytestmark = pytest.mark.timeout(180)

Fresh = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def _redis(_: Path) -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@contextmanager
def _redlock(_: Path) -> Iterator[str]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(RedisServer()) for _ in range(3)]
        yield redlock_url(nodes, request_timeout=1, restart_grace=0)  # a new cluster may have a node of each layout


def _sql(server: Callable[[], SqlServer], mode: str) -> Fresh:
    return lambda _: server().fresh_database(mode=mode)


FRESH: dict[str, Fresh] = {
    "sqlite": lambda folder: nullcontext(f"sqlite:///{folder}/locks.db"),
    "redis": _redis,
    "redlock": _redlock,
    "postgres": _sql(postgres_server, "lease"),
    "mysql-row": _sql(mariadb_server, "row"),
    "zookeeper": lambda _: nullcontext(zookeeper_server().lock_space()),
    "postgres-advisory": _sql(postgres_server, "advisory"),
    "mysql": _sql(mariadb_server, "lease"),
    "postgres-row": _sql(postgres_server, "row"),
    "mysql-advisory": _sql(mariadb_server, "advisory"),
}
"""Every store that processes share: one that nobody has used."""


class Versions(Stage):
    """Crews of two versions."""

    def __init__(self, nurseries: dict[str, Worker], url: str, folder: Path, seed: str) -> None:
        super().__init__(nurseries["old"], [], url, folder, seed)
        self._nurseries = nurseries

    def start(self, version: str) -> Crew:
        url = f"{self.url}{'&' if '?' in self.url else '?'}prefix=version%20{version}:"
        return self.crew(first=FIRST[version], nursery=self._nurseries[version], url=url, **LOAD)

    def start_all(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.start, NUMBERS))

    def of(self, version: str) -> list[Event]:
        processes = {f"process {FIRST[version] + number}" for number in range(2)}
        return [event for event in self.events() if event.who.partition("/")[0] in processes]

    def refusals(self, version: str) -> list[str]:
        return [event.note for event in self.of(version) if event.kind == "unreachable"]

    def grants(self, version: str) -> int:
        return sum(event.kind == "granted" for event in self.of(version))

    def end(self) -> None:
        for crew in self.crews:
            crew.end()


@contextmanager
def nurseries_of(*options_of_new: str) -> Iterator[dict[str, Worker]]:
    with Worker(str(NURSERY), 1) as old, Worker(str(NURSERY), 2, *options_of_new) as new:
        yield {"old": old, "new": new}


@pytest.fixture(scope="module")
def nurseries() -> Iterator[dict[str, Worker]]:
    with nurseries_of() as both:
        yield both


@pytest.fixture(scope="module")
def one_is_blind() -> Iterator[dict[str, Worker]]:
    with nurseries_of("blind") as both:
        yield both


@contextmanager
def staged(nurseries: dict[str, Worker], store: str, folder: Path, seed: str) -> Iterator[Versions]:
    with FRESH[store](folder) as url:
        versions = Versions(nurseries, url, folder, seed)
        try:
            yield versions
        finally:
            versions.close()


@pytest.mark.in_turn(6)
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "at once" if order is None else f"{order[0]} first")
@pytest.mark.parametrize("store", FRESH)
def test_one_of_two_versions_works_and_the_other_is_told_what_to_do(
    store: str, order: tuple[str, str] | None, nurseries: dict[str, Worker], tmp_path: Path, seed: str
) -> None:
    with staged(nurseries, store, tmp_path, seed) as versions:
        if order is None:
            versions.start_all()
            until(lambda: all(versions.grants(each) or versions.refusals(each) for each in NUMBERS), within=20.0)
            working, refused = sorted(NUMBERS, key=versions.grants, reverse=True)
        else:
            working, refused = order
            versions.start(working)
            until(partial(_has_grants, versions, working, 20), within=20.0)
            versions.start(refused)
        before = versions.grants(working)
        until(lambda: len(versions.refusals(refused)) >= 20, within=20.0)
        until(lambda: versions.grants(working) >= before + 20, within=20.0)
        versions.end()
        assert versions.grants(refused) == 0
        told = set(versions.refusals(refused))
        ours, theirs = NUMBERS[refused], NUMBERS[working]
        assert all(f"layout {theirs}, and this version of Gripfast uses layout {ours}" in text for text in told), told
        assert all("docs/compatibility.md" in text for text in told), told
        assert violations(versions.of(working)) == []
        found = violations(versions.events(), may_be_unreachable=True)
        assert {each.rule for each in found} <= {"impatient"}, found[:10]  # who is refused does not wait


def _has_grants(versions: Versions, version: str, count: int) -> bool:
    return versions.grants(version) >= count


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("store", FRESH)
def test_a_version_that_does_not_look_is_noticed(
    store: str, one_is_blind: dict[str, Worker], tmp_path: Path, seed: str
) -> None:
    with staged(one_is_blind, store, tmp_path, seed) as versions:
        versions.start("old")
        until(lambda: versions.grants("old") >= 20, within=20.0)
        versions.start("new")
        until(lambda: versions.grants("new") >= 50, within=20.0)
        versions.end()
        found = violations(versions.events(), may_be_unreachable=True)
        assert "overlap" in {each.rule for each in found}
