"""What docs/compatibility.md says to an operator works as printed."""

import subprocess
import uuid
from typing import Any

import pytest

import gripfast
from gripfast.stores import layout
from support.etcd_servers import etcd_server
from support.pages import blocks, page
from support.redis_server import HOST, RedisServer
from support.sql_servers import mariadb_server, postgres_server
from support.zookeeper_servers import new_root, zookeeper_server

PAGE = page("compatibility")


def only(language: str) -> str:
    (block,) = blocks(PAGE, language)
    return block.strip()


def refused(url: str) -> str:
    with gripfast.connect(url) as client, pytest.raises(gripfast.StoreUnavailable) as caught:
        client.lock("job").acquire()
    return str(caught.value)


def use(url: str) -> None:
    with gripfast.connect(url) as client:
        client.lock("job").acquire().release()


def test_the_table_has_the_numbers_of_this_version() -> None:
    version = ".".join(gripfast.__version__.split(".")[:2])
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {version} |")]
    numbers = [int(cell) for cell in row.strip("| ").split("|")[1:]]
    assert numbers == [layout.REDIS, layout.SQL, layout.SQLITE, layout.ZOOKEEPER, layout.ETCD]


def test_the_refusal_is_the_one_that_is_shown_and_redis_forgets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer() as server:
        use(server.url)
        monkeypatch.setattr(layout, "REDIS", 2)
        shown = " ".join(blocks(PAGE, "text")[0].split())
        assert refused(server.url).replace(f"{HOST}:{server.port}", "localhost:6379") == shown
        subprocess.run(["redis-cli", "-p", str(server.port)], input=only("redis"), text=True, check=True)
        use(server.url)


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
@pytest.mark.parametrize(("language", "server_of"), [("postgresql", postgres_server), ("mysql", mariadb_server)])
def test_databases_forget_their_number(
    language: str, server_of: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of()
    with server.fresh_database(mode=mode) as url:
        use(url)
        monkeypatch.setattr(layout, "SQL", 2)
        assert "layout 1, and" in refused(url)
        database = url.partition("?")[0].rpartition("/")[2]
        server.execute(only(language if mode == "lease" else "sql"), database=database)
        use(url)


def test_etcd_forgets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"layout-{uuid.uuid4().hex}/"
    url = etcd_server().url_with(root=root)
    use(url)
    monkeypatch.setattr(layout, "ETCD", 2)
    assert "layout 1, and" in refused(url)
    _, *words = only("sh").split()
    etcd_server().ctl(*(word.replace("gripfast/", root) for word in words))
    use(url)


def test_zookeeper_forgets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_root()
    url = zookeeper_server().url_with(root=root)
    use(url)
    monkeypatch.setattr(layout, "ZOOKEEPER", 2)
    assert "layout 1, and" in refused(url)
    verb, path = blocks(PAGE, "text")[-1].split()
    with zookeeper_server().client() as kazoo:
        getattr(kazoo, verb)(path.replace("/gripfast", root))
    use(url)
