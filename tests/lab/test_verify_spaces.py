"""What `gripfast verify` finds below a prefix, and that it removes that and nothing else."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

import gripfast
from gripfast.api.config import configure
from gripfast.stores.redis.keys import side_key
from gripfast_lab.verify.spaces import is_below, space_of
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.stores import STORES, StoreUnderTest

SHARED = [store for store in STORES if store.name != "memory"]


def use(url: str, prefix: str) -> None:
    """Everything that leaves something: a lock that stays, others that are released."""
    with gripfast.connect(url, prefix=prefix) as client:
        client.lock("a", ttl=30).acquire(wait=10).release()
        if client.capabilities.semaphores:
            client.semaphore("s", 2).acquire(wait=10).release()
        if client.capabilities.rwlocks:
            client.rwlock("r").write().acquire(wait=10).release()


@pytest.mark.parametrize("store", SHARED, ids=lambda store: store.name)
def test_what_is_below_the_prefix_is_removed_and_nothing_else(store: StoreUnderTest, tmp_path: Path) -> None:
    with store.fresh(tmp_path) as url:
        own, other = configure(url, {}).prefix + "own:", configure(url, {}).prefix + "other:"
        space = space_of(configure(url, {"prefix": own}))
        beside = space_of(configure(url, {"prefix": other}))
        assert space.found() == []
        use(url, own)
        use(url, other)
        found = beside.found()
        assert found
        assert space.found()
        space.clear()
        assert space.found() == []
        assert beside.found() == found
        with gripfast.connect(url, prefix=own) as client:
            assert client.lock("a").try_acquire() is not None
        beside.clear()


SQL = {"postgres": postgres_server, "mariadb": mariadb_server}


def tables(server: SqlServer, url: str) -> int:
    database = urlsplit(url).path.strip("/")
    named = "SELECT count(*) FROM information_schema.tables WHERE table_schema IN ('public', %s) AND table_name LIKE %s"
    [(count,)] = server.execute(named, database, "gripfast%", database=database)
    return int(count)


@pytest.mark.parametrize("engine", SQL)
@pytest.mark.parametrize("mode", ["lease", "row"])
def test_tables_go_if_a_run_has_made_them_and_nobody_else_uses_them(engine: str, mode: str) -> None:
    server = SQL[engine]()
    with server.fresh_database(mode=mode) as url:
        assert tables(server, url) == 0
        space = space_of(configure(url, {"prefix": "own:"}))
        later = space_of(configure(url, {"prefix": "later:"}))
        use(url, "own:")
        use(url, "later:")
        space.clear()
        assert later.found()
        later.clear()
        assert tables(server, url) > 0
        space.clear()
        assert tables(server, url) == 0


def test_a_file_goes_if_a_run_has_made_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    space = space_of(configure(url, {"prefix": "own:"}))
    use(url, "own:")
    assert [*tmp_path.iterdir()]
    space.clear()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["own:a", "own:{a}:b", "own:a}b", "own:"])
def test_side_keys_belong_to_their_lock(name: str) -> None:
    lock = name.encode()
    assert is_below(b"own:", lock)
    assert is_below(b"own:", side_key(lock, b"token"))
    assert is_below(b"own:", side_key(lock, b"semaphore:ends"))
    assert is_below(b"{app}own:", side_key(b"{app}" + lock, b"token"))
    assert not is_below(b"own:", side_key(b"{app}" + lock, b"token"))


@pytest.mark.parametrize("key", [b"x", b"app:own:a", b"{own:a}", b"{app:own:a}\0gripfast:token", b"\0gripfast:own:"])
def test_keys_of_others_do_not(key: bytes) -> None:
    assert not is_below(b"own:", key)
