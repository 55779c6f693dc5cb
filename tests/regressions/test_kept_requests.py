"""Requests that keep or hand over a lock may be repeated, and other owners' are refused: at each engine, request by
request."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest
import redis

import gripfast
from gripfast.core.ports import Claim, Granted, HandsOver, Hold, Keep
from gripfast.runtime.blocking import drive
from support.proxy import Proxy
from support.redis_server import shared_server
from support.waiting import until
from sweeps.worlds import url_of

STORES = ["memory", "sqlite", "redis", "postgres-lease", "mysql-lease"]
LONG = 600.0


def held(client: gripfast.Client, owner: str) -> Granted:
    granted = drive(client._store().claim(Claim(client._key("job"), owner, 30.0, None, None)))
    assert isinstance(granted, Granted)
    return granted


def hold(client: gripfast.Client, owner: str, keep: Keep | None = None) -> Hold:
    return Hold(client._key("job"), owner, 30.0, keep=keep)


@pytest.mark.parametrize("store", STORES)
def test_a_repeated_adoption_finds_its_token(store: str, tmp_path: Path) -> None:
    with gripfast.connect(url_of(store, tmp_path)) as client:
        first = held(client, "a" * 32)
        engine = cast(HandsOver, client._store())
        claim = Claim(client._key("job"), "b" * 32, 30.0, None, None)
        answers = [drive(engine.adopt(hold(client, "a" * 32), claim)) for _ in range(3)]
        assert isinstance(answers[0], Granted)
        assert answers[0].token > first.token
        assert {each.token for each in answers if isinstance(each, Granted)} == {answers[0].token}
        assert drive(engine.adopt(hold(client, "a" * 32), claim._replace(owner="c" * 32))) == "taken"
        assert drive(client._store().renew([hold(client, "a" * 32)])) == ["taken"]
        assert drive(client._store().renew([hold(client, "b" * 32)])) == [None]


@pytest.mark.parametrize("store", STORES)
def test_a_repeated_request_to_keep_changes_nothing(store: str, tmp_path: Path) -> None:
    """Only the owner id in the marker confirms it."""
    with gripfast.connect(url_of(store, tmp_path)) as client:
        held(client, "a" * 32)
        keep = Keep("done:" + "a" * 32, LONG)
        engine = client._store()
        assert drive(engine.release(hold(client, "a" * 32, keep))) is None
        assert drive(engine.release(hold(client, "a" * 32, keep._replace(seconds=LONG * 100)))) is None
        assert drive(engine.abandon([hold(client, "a" * 32, keep)])) == [None]
        info = client.inspect("job")
        assert info is not None
        assert (info.kept, info.owner) == ("done", keep.owner)
        assert info.expires_in <= LONG
        other = hold(client, "b" * 32, Keep("done:" + "b" * 32, LONG))
        assert drive(engine.release(other)) == "taken"
        assert drive(engine.renew([hold(client, "a" * 32)])) == ["taken"]


@pytest.mark.parametrize("store", STORES)
def test_an_abandoned_owner_without_the_lock_keeps_nothing(store: str, tmp_path: Path) -> None:
    with gripfast.connect(url_of(store, tmp_path)) as client:
        mine = hold(client, "a" * 32, Keep("kept:" + "a" * 32, LONG))
        assert drive(client._store().abandon([mine])) == [None]
        assert client.inspect("job") is None
        held(client, "b" * 32)
        assert drive(client._store().abandon([mine])) == [None]
        info = client.inspect("job")
        assert info is not None
        assert info.owner == "b" * 32


def test_other_libraries_respect_what_is_kept() -> None:
    url = shared_server().url_with(prefix="kept-foreign:")
    with gripfast.connect(url) as client, shared_server().client() as foreign:
        client.lock("job", min_hold=LONG).acquire().release()
        assert redis.Redis.lock(foreign, "kept-foreign:job", timeout=5).acquire(blocking=False) is False
        assert 0 < cast(int, foreign.pttl("kept-foreign:job")) <= LONG * 1000
        assert client.force_release("job")
        lock = redis.Redis.lock(foreign, "kept-foreign:job", timeout=5)
        assert lock.acquire(blocking=False)
        lock.release()


def test_what_redis_keeps_for_long_keeps_its_details() -> None:
    """The token outlives the marker, however long that lasts."""
    url = shared_server().url_with(prefix="kept-long:")
    with gripfast.connect(url) as client, shared_server().client() as server:
        with client.once("job", keep=30 * 86400, label="monthly") as run:
            assert run
        ttls = [cast(int, server.pttl(key)) for key in server.scan_iter("*kept-long:*")]
        assert min(ttls) > 29 * 86400 * 1000
        assert client.forget("job")


@pytest.mark.parametrize("store", ["redis", "postgres-lease", "mysql-lease"])
def test_a_release_whose_reply_is_lost_is_no_loss_when_its_min_hold_is_over(store: str, tmp_path: Path) -> None:
    """It is repeated, and finds that somebody else has the lock."""
    url = url_of(store, tmp_path)
    port = urlsplit(url).port
    with (
        Proxy(("127.0.0.1", cast(int, port))) as proxy,
        gripfast.connect(url) as other,
        gripfast.connect(url.replace(f":{port}/", f":{proxy.port}/"), request_timeout=20.0) as client,
        ThreadPoolExecutor() as pool,
    ):
        client.lock("warm-up", min_hold=LONG).acquire().release()  # the server knows the script from now on
        lease = client.lock("job", min_hold=1.0).acquire()
        proxy.hold()
        release = pool.submit(lease.release)
        until(lambda: (info := other.inspect("job")) is not None and info.kept == "min_hold")
        with other.lock("job"):  # the marker is gone, too
            proxy.cut()
            proxy.let_go()
            release.result(timeout=20.0)
