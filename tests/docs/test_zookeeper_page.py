"""What docs/zookeeper.md shows works as printed, and what it says about the servers is what one finds there."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import gripfast
from gripfast.core import rules
from gripfast.runtime.parts import Patience
from gripfast.stores.zookeeper import factory, protocol, session, spec, store
from support.pages import blocks, page, run_program
from support.waiting import until
from support.zookeeper_servers import ZooKeeperServer

PAGE = page("zookeeper")
WORDS = " ".join(PAGE.split())
BY_DEFAULT = ("tickTime=2000", "minSessionTimeout=4000", "maxSessionTimeout=40000")
"""What a server that is told nothing has."""


def table(first_cell: str) -> list[list[str]]:
    """The cells of the table that begins so, without its heading."""
    rows = PAGE.partition(f"\n| {first_cell} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return [[cell.strip(" ") for cell in row.strip("|").split(" | ")] for row in rows]


def named(text: str) -> list[str]:
    return re.findall("`([^`]+)`", text)


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(*BY_DEFAULT) as server:
        yield server


@pytest.fixture
def kazoo(server: ZooKeeperServer) -> Iterator[KazooClient]:
    with server.client() as client:
        yield client


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_every_example_of_the_page_runs(server: ZooKeeperServer, code: str, tmp_path: Path) -> None:
    assert "localhost:2181" in code
    assert run_program(code.replace("localhost:2181", server.address), tmp_path)


# -- what the page says of the code ------------------------------------------------------------------------------------


def test_the_options_and_their_defaults_are_those_of_the_code(server: ZooKeeperServer) -> None:
    defaults = {named(option)[0]: default for option, default, *_ in table("option")}
    assert set(defaults) == {"ttl", "root", "prefix", "request_timeout", "connect_patience"}
    assert named(defaults["root"]) == [factory.ROOT]
    assert float(defaults["ttl"]) == rules.TTL_DEFAULT
    assert float(defaults["request_timeout"]) == factory.ZooKeeperFactory.request_timeout
    assert float(defaults["connect_patience"]) == Patience(request_timeout=1.0).connect_patience


def test_the_options_of_kazoo_are_those_that_are_passed_on() -> None:
    told = PAGE.partition("options for TLS go to kazoo: ")[2].partition("An unknown option")[0]
    assert sorted(named(told)) == sorted(spec.OF_THE_DRIVER)
    with pytest.raises(gripfast.ConfigurationError):
        gripfast.connect("zookeeper://localhost?hosts=elsewhere")


def test_the_figures_are_those_of_the_code() -> None:
    assert (session.SHARE, "3/4 of the time-out" in WORDS, "ttl × 4/3" in WORDS) == (0.75, True, True)
    assert f"of its locks, up to {session.SESSIONS_MOST}." in WORDS
    assert (session.TTL_LEAST / session.SHARE, "never less than a second" in WORDS) == (1.0, True)
    assert f"looks again every {store.SLOW_PACE:g} s" in WORDS
    assert (rules.drift(100.0), "1 % and 2 ms" in WORDS) == (pytest.approx(1.002), True)
    assert (factory.PORT, "you may leave out the port" in WORDS) == (2181, True)


def test_what_a_client_can_do_is_what_the_page_says() -> None:
    with gripfast.connect("zookeeper://localhost") as client:
        can = client.capabilities
    assert (can.fair, can.push, can.session, can.durable_fence) == (True, True, True, True)
    assert (can.lists, can.waiters_seen, can.processes, can.sees_death) == (True, True, True, False)


@pytest.mark.parametrize("phrase", re.findall(r'"([^"]+)"', PAGE.partition("| no right |")[2].partition("\n")[0]))
def test_the_error_is_in_these_words(phrase: str) -> None:
    assert phrase in str(protocol.fault("", NoAuthError()))


# -- what the page says of the server ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "got"), [(1, 1.0), (10, 10.0), (30, 30.0), (3600, 30.0)])
def test_a_server_that_is_told_nothing_gives_these_ttls(server: ZooKeeperServer, asked: float, got: float) -> None:
    with gripfast.connect(server.lock_space()) as client, client.lock("job", ttl=asked) as lease:
        assert lease.ttl == pytest.approx(got, abs=0.01)
        assert 0.9 * got < lease.remaining() < got


def test_the_nodes_are_those_that_the_page_names(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    parent, contender, _, layout = (named(cell)[0] for cell, *_ in table("node"))
    pattern = re.escape(contender.removeprefix(f"{parent}/")).replace("OWNER", "[0-9a-f]{32}").replace("7", r"\d")
    with gripfast.connect(server.url) as client, ThreadPoolExecutor(1) as pool:
        with client.lock("NAME", label="one") as lease:
            waiting = pool.submit(lambda: client.lock("NAME").acquire(wait=20).release())
            until(lambda: len(kazoo.get_children(parent)) == 2)
            first, second = sorted(kazoo.get_children(parent), key=lambda node: node[-10:])
            assert all(re.fullmatch(pattern, node) for node in (first, second))
            assert first.startswith(lease.owner)
            data, stat = kazoo.get(f"{parent}/{first}")
            assert (stat.czxid, stat.ephemeralOwner != 0) == (lease.token, True)
            assert list(json.loads(data)) == named(PAGE.partition("as JSON:")[2].partition("Prefix and name")[0])
        waiting.result()
        assert kazoo.get_children(parent) == []
        assert kazoo.get(layout)[0] == b"1"


def test_the_nodes_of_permits_are_those_that_the_page_names(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    semaphore, waiter, holder, rwlock, readers = (named(cell)[0] for cell, *_ in table("node of permits"))

    def queue(parent: str) -> list[str]:
        """As the page has them."""
        nodes = sorted(kazoo.get_children(parent), key=lambda node: node[-10:])
        return [re.sub(r"\d{10}$", "0000000007", re.sub("^[0-9a-f]{32}", f"{parent}/OWNER", node)) for node in nodes]

    with gripfast.connect(server.url) as client, ThreadPoolExecutor(1) as pool:
        with client.semaphore("NAME", 3).acquire(2) as lease:
            waiting = pool.submit(lambda: client.semaphore("NAME", 3).acquire(2, wait=20).release())
            until(lambda: len(kazoo.get_children(semaphore)) == 2)
            assert queue(semaphore) == [holder, waiter]
            assert kazoo.get(semaphore)[1].mzxid == lease.token
            assert b'"limit": 3' in kazoo.get(semaphore)[0]
        waiting.result()
        with client.rwlock("NAME").write() as writer:
            assert queue(rwlock) == [readers.replace("read__", "write__")]
            writer.downgrade()
            assert queue(rwlock) == [readers]


def test_names_are_encoded_as_the_page_says(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    found = re.search(r"So `([^`]+)` is `([^`]+)`", WORDS)
    assert found is not None
    name, path = found.groups()
    with gripfast.connect(server.url) as client, client.lock(name):
        assert len(kazoo.get_children(path)) == 1


def test_a_chroot_need_not_be_there(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    with gripfast.connect(f"{server.url}/app1") as client, client.lock("job"):
        assert len(kazoo.get_children("/app1/gripfast/job")) == 1


def test_what_is_told_of_tokens_is_so(server: ZooKeeperServer, kazoo: KazooClient) -> None:
    with gripfast.connect(server.lock_space()) as client:
        with client.lock("one") as first:
            pass
        before = kazoo.create("/unrelated", ephemeral=True, include_data=True)[1].czxid
        with client.lock("another") as second:
            pass
    assert first.token < before < second.token < 1e15
