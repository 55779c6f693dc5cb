"""What viewers are sent: one scan for all of them, none for nobody, only what has changed, and what is wrong."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

import gripfast
from gripfast.api.rows import Holder, Row, Scan, scan
from gripfast.api.watching import View
from gripfast.errors import StoreUnavailable
from gripfast.serve import feed, server
from gripfast.serve.changes import Changes
from serve.stage import Stage
from support.proxy import Proxy
from support.redis_server import HOST, shared_server
from support.waiting import until

WALL = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


class Scans:
    """Counts them, and how many there were at the same time."""

    def __init__(self) -> None:
        self.count = self.at_once = self.most = 0
        self._guard = threading.Lock()

    def __call__(self, client: gripfast.Client, prefix: str = "") -> Scan:
        with self._guard:
            self.count += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            return scan(client, prefix)
        finally:
            with self._guard:
                self.at_once -= 1


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    scans = Scans()
    monkeypatch.setattr(server, "scan", scans)
    return scans


def test_viewers_see_locks_come_and_go(stage: Stage, client: gripfast.Client) -> None:
    with client.lock("first", label="one"), stage.events() as events:
        events.until_names("first")
        (row,) = events.rows.values()
        assert row["holders"][0]["label"] == "one"
        with client.lock("second"):
            events.until_names("first", "second")
        events.until_names("first")


def test_only_what_has_a_prefix_is_shown(sqlite_url: str, client: gripfast.Client) -> None:
    with client.lock("a:1"), client.lock("b:1"), Stage(sqlite_url, prefix="a:") as stage, stage.events() as events:
        events.until_names("a:1")


def test_one_scan_at_a_time_serves_all_viewers(sqlite_url: str, scans: Scans) -> None:
    with Stage(sqlite_url, every=0.2) as stage, ExitStack() as stack:
        viewers = [stack.enter_context(stage.events()) for _ in range(10)]
        for viewer in viewers:
            viewer.until("rows")
        began, before = time.monotonic(), scans.count
        for _ in range(3):
            for viewer in viewers:
                viewer.until("rows")
        # Ten viewers have had three scans each: that were three scans, and at most as many as there was time for.
        assert scans.count - before <= 2 + (time.monotonic() - began) / 0.2
        assert scans.most == 1


def test_while_nobody_looks_nothing_is_scanned(sqlite_url: str, scans: Scans) -> None:
    with Stage(sqlite_url, every=0.01) as stage:
        assert stage.get("/healthz").status == 200
        assert scans.count == 0
        with stage.events() as events:
            events.until("rows")
        until(lambda: stage.page.feed.viewers == 0)
        until(lambda: scans.at_once == 0)
        before = scans.count
        enough = time.monotonic() + 0.5
        while time.monotonic() < enough:  # so long that there would be many scans
            assert stage.get("/healthz").status == 200
        assert scans.count <= before + 1  # one may have been due at that moment


def test_a_viewer_who_comes_later_sees_everything_at_once_and_nothing_old(
    sqlite_url: str, client: gripfast.Client
) -> None:
    with Stage(sqlite_url, every=600) as stage:
        with client.lock("old"), stage.events() as first:
            first.until_names("old")
            with stage.events() as second:
                assert second.until("rows")["whole"]
                assert second.names == {"old"}
        until(lambda: stage.page.feed.viewers == 0)
        with client.lock("new"), stage.events() as third:
            third.until("rows")
            assert third.names == {"new"}


def test_a_store_that_can_t_be_reached_is_told_and_so_is_its_return() -> None:
    with Proxy((HOST, shared_server().port)) as proxy:
        url = f"redis://{HOST}:{proxy.port}/0?prefix=serve-unreachable:"
        with gripfast.connect(url) as holder, Stage(url) as stage, stage.events() as events:
            with holder.lock("n", renew=False, ttl=600):
                events.until_names("n")
                assert stage.get("/readyz").status == 200
                proxy.refuse()
                proxy.cut()
                trouble = events.until("trouble")
                assert trouble["reason"]
                assert events.names == {"n"}
                until(lambda: stage.get("/readyz").status == 503)
                assert b"gripfast_store_up 0.0" in stage.get("/metrics").body
                proxy.accept()
                assert not events.until("rows")["whole"]
                until(lambda: stage.get("/readyz").status == 200)
                assert events.names == {"n"}


def test_a_viewer_who_comes_in_trouble_is_told_of_it() -> None:
    with Proxy((HOST, shared_server().port)) as proxy:
        proxy.refuse()
        with Stage(f"redis://{HOST}:{proxy.port}/0?prefix=serve-trouble:") as stage, stage.events() as events:
            assert events.next()[0] == "trouble"
            proxy.accept()
            with stage.client.lock("n"):
                events.until_names("n")


def test_what_was_broken_is_seen_before_the_next_scan_is_due(sqlite_url: str, client: gripfast.Client) -> None:
    with Stage(sqlite_url, every=600, may_break=True) as stage, stage.events() as events:
        lease = client.lock("n").acquire()
        stage.page.feed.refresh()
        events.until_names("n")
        assert stage.order("/break", {"kind": "lock", "name": "n", "owners": [lease._state.owner]}).status == 200
        events.until_names()


def test_the_end_of_the_server_ends_its_streams(sqlite_url: str) -> None:
    with ExitStack() as stack:
        with Stage(sqlite_url) as stage:
            events = stack.enter_context(stage.events())
            events.until("rows")
        with pytest.raises(EOFError):
            while True:
                events.next()


# -- changes, without a server -----------------------------------------------------------------------------------------


def holder(token: int = 1, expires_in: float = 30.0) -> Holder:
    return Holder(f"owner{token}", token, None, "host", 1, WALL, expires_in)


def scanned(*rows: Row, after: float = 0.0, took: float = 0.0) -> View:
    wall = datetime.fromtimestamp(WALL.timestamp() + after, UTC)
    return View(Scan("here", rows, after, wall, took, ()), None, number=int(after))


def row(name: str, expires_in: float = 30.0, token: int = 1, waiters: int = 0) -> Row:
    return Row("lock", name, (holder(token, expires_in),), waiters)


def test_at_first_everything_is_new() -> None:
    news = Changes().after(scanned(row("a"), row("b")))
    assert [patch["name"] for patch in news.patches] == ["a", "b"]
    assert [patch["id"] for patch in news.patches] == [1, 2]


def test_then_only_what_has_changed() -> None:
    changes = Changes()
    changes.after(scanned(row("a"), row("b"), row("c")))
    news = changes.after(scanned(row("a", 28), row("b", 28, waiters=2), row("d"), after=2))
    assert news.patches[0] == {"id": 2, "waiters": 2}
    assert [patch["id"] for patch in news.patches] == [2, 4]
    assert news.gone == [3]


def test_a_renewal_is_a_number() -> None:
    changes = Changes()
    changes.after(scanned(row("a")))
    assert changes.after(scanned(row("a", 30), after=10)).patches == [{"id": 1, "expires": [WALL.timestamp() + 40]}]


@pytest.mark.parametrize(("took", "late"), [(0.0, 0.9), (5.0, 5.5)])
def test_a_moment_that_is_as_inexact_as_the_scan_was_slow_is_the_same(took: float, late: float) -> None:
    changes = Changes()
    changes.after(scanned(row("a", 30)))
    assert changes.after(scanned(row("a", 28 + late), after=2, took=took)).patches == []


def test_a_lock_that_never_expires_has_no_moment() -> None:
    (patch,) = Changes().after(scanned(row("a", float("inf")))).patches
    assert patch["expires"] == [None]


def test_in_trouble_nothing_changes_until_the_store_is_back() -> None:
    changes = Changes()
    seen = scanned(row("a"))
    changes.after(seen)
    troubled = View(seen.scan, None, StoreUnavailable("gone"), 0.0, 2)
    assert changes.after(troubled).changed.startswith(b'event: trouble\ndata: {"reason":"gone"')
    assert changes.after(scanned(row("a", 28), row("b"), after=2)).patches[0]["name"] == "b"


# -- viewers, without a server -----------------------------------------------------------------------------------------


def in_a_loop(test: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return test()

    return asyncio.run(run())


def test_a_viewer_who_is_too_slow_gets_everything_anew() -> None:
    changes = Changes()
    news = [changes.after(scanned(row("a", token=n), after=float(n))) for n in range(1, feed.LAG_MOST + 4)]

    def lags() -> list[bytes]:
        viewer = feed.Viewer()
        viewer.tell(news[0])
        assert list(viewer.take()) == [news[0].whole]
        for each in news[1:]:
            viewer.tell(each)
        return list(viewer.take())

    assert in_a_loop(lags) == [news[-1].whole]


def test_what_arrives_while_a_viewer_is_sent_everything_is_not_lost() -> None:
    changes = Changes()
    first, second = (changes.after(scanned(row("a", token=n), after=float(n))) for n in (1, 2))

    def meanwhile() -> list[bytes]:
        viewer = feed.Viewer()
        viewer.tell(first)
        sending = viewer.take()
        sent = [next(sending)]
        viewer.tell(second)
        return sent + list(sending)

    assert in_a_loop(meanwhile) == [first.whole, second.changed]
