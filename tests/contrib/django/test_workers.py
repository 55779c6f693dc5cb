"""A site with two gunicorn workers: views that read and write, many at a time, and a worker that is killed."""

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gripfast
from contrib.django.bazaar_processes import Bazaar, database_of, gunicorn, sqlite_in
from support.ports import reserved_port
from support.sql_servers import postgres_server
from support.waiting import until

SALES = 60


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=150) as page:
        return json.loads(page.read())


def answers(port: int) -> bool:
    try:
        get(port, "/sell_unlocked/first")
    except OSError:
        return False
    return True


STALLS = "from bazaar.models import Stall; [Stall.objects.create(name=n) for n in ('first', 'tea', 'rows', 'open')]"


@pytest.fixture(params=["postgres", "sqlite"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, str]]:
    """Its port, and the URL of its locks."""
    if request.param == "sqlite":
        yield from served(Bazaar(sqlite_in(tmp_path)), f"sqlite:///{tmp_path}/bazaar.sqlite3.locks")
        return
    with postgres_server().fresh_database() as url:
        locks = {"default": {"DATABASE": "default"}, "rows": {"DATABASE": "default", "MODE": "row"}}
        database = database_of(url, CONN_MAX_AGE=600, ATOMIC_REQUESTS=True)
        yield from served(Bazaar(database, locks), url)


def served(bazaar: Bazaar, url: str) -> Iterator[tuple[int, str]]:
    bazaar.manage("migrate", "-v", "0")
    bazaar.manage("shell", "-c", STALLS)
    port = reserved_port()
    with gunicorn(bazaar, port):
        until(lambda: answers(port), within=120)
        yield port, url


def sold(port: int, view: str, stall: str) -> list[int]:
    """Which worker has made each sale; all of them are acknowledged."""
    with ThreadPoolExecutor(4) as pool:
        return [answer["pid"] for answer in pool.map(lambda _: get(port, f"/{view}/{stall}"), range(SALES))]


def total(port: int, stall: str) -> int:
    return int(get(port, f"/sell_unlocked/{stall}")["sold"]) - 1


@pytest.mark.in_turn(2)
def test_no_sale_is_lost_among_workers(site: tuple[int, str]) -> None:
    port, _ = site
    sellers: list[int] = []  # at first one of the two may still be starting
    until(lambda: sellers.extend(sold(port, "sell", "tea")) or len(set(sellers)) == 2, within=120)
    assert total(port, "tea") == len(sellers)


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_no_sale_is_lost_by_locks_in_the_transactions_and_some_are_without_locks(site: tuple[int, str]) -> None:
    port, _ = site
    sold(port, "sell_within", "rows")
    assert total(port, "rows") == SALES
    sales: list[int] = []
    until(lambda: sales.extend(sold(port, "sell_unlocked", "open")) or total(port, "open") < len(sales), within=120)


@pytest.mark.in_turn(2)
def test_a_worker_that_is_killed_in_the_middle_is_succeeded(site: tuple[int, str]) -> None:
    port, url = site
    with gripfast.connect(url) as client, ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(fails(lambda: get(port, "/sell_for_ever/tea")))
        info = until(lambda: client.inspect("stall:tea"), within=60)
        assert (info.label, info.pid != os.getpid()) == ("for ever", True)
        os.kill(info.pid, signal.SIGKILL)
        assert get(port, "/sell/tea")["pid"] != info.pid
        assert hanging.result()


def fails(request: Callable[[], object]) -> Callable[[], bool]:
    def run() -> bool:
        try:
            request()
        except (OSError, ValueError):
            return True
        return False

    return run
