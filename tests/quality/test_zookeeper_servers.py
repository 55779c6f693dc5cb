"""The ZooKeeper servers of the tests: they answer, do what they are told, and never outlive the tests."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from quality.tree import ROOT
from support.proxy import Proxy
from support.run_wide import RUN, workers_in
from support.server_process import HOST
from support.waiting import until
from support.zookeeper_servers import Ensemble, ZooKeeperServer, connected, zookeeper_server

SHORT = 0.5
"""Seconds; the time-out of sessions that are to end soon."""


@pytest.fixture
def own() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with Ensemble() as ensemble:
        yield ensemble


# Who they are ---------------------------------------------------------------------------------------------------------


def test_it_answers_at_its_url() -> None:
    server = zookeeper_server()
    with connected(urlsplit(server.url).netloc) as client:
        node = client.create(f"/{uuid.uuid4().hex}", b"seven")
        assert client.get(node)[0] == b"seven"
    assert server.mode == "standalone"


def test_lock_spaces_have_roots_of_their_own() -> None:
    one, other = (parse_qs(urlsplit(zookeeper_server().lock_space(prefix="x:")).query) for _ in range(2))
    assert one["prefix"] == ["x:"]
    assert one["root"] != other["root"]


def test_its_sessions_may_be_short_and_end_with_the_silence_of_their_client() -> None:
    server = zookeeper_server()
    with server.client() as observer, Proxy((HOST, server.port)) as proxy:
        with connected(f"{proxy.host}:{proxy.port}", timeout=SHORT) as client:
            node = client.create(f"/{uuid.uuid4().hex}", ephemeral=True)
            proxy.black_hole()
            silent = time.monotonic()
            until(lambda: observer.exists(node) is None)
            assert time.monotonic() - silent < SHORT + 0.5
            proxy.let_go()


def test_two_servers_are_two(own: ZooKeeperServer) -> None:
    with own.client() as client:
        client.create("/only-here")
    with zookeeper_server().client() as client:
        assert client.exists("/only-here") is None


def test_settings_reach_the_server() -> None:
    with ZooKeeperServer("tickTime=321") as server:
        assert "tickTime=321" in server.four("conf").splitlines()


def test_settings_that_are_wrong_fail_with_the_words_of_the_server() -> None:
    with pytest.raises(AssertionError, match="no-such-number"):
        ZooKeeperServer("tickTime=no-such-number")


def test_it_counts_its_connections(own: ZooKeeperServer) -> None:
    assert own.connections == 0
    with own.client():
        assert own.connections == 1


# What is done to them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_was_ended_has_its_data_when_it_is_started_again(own: ZooKeeperServer, how: str) -> None:
    with own.client() as client:
        client.create("/kept")
    before = own.url, own.pid
    getattr(own, how)()
    assert not own.running
    assert own.four("ruok") == ""
    own.restart()
    with own.client() as client:
        assert client.exists("/kept")
    assert own.url == before[0]
    assert own.pid != before[1]


def test_a_server_can_be_made_to_forget(own: ZooKeeperServer) -> None:
    with own.client() as client:
        client.create("/forgotten")
    own.restart_empty()
    with own.client() as client:
        assert client.exists("/forgotten") is None


def test_a_paused_server_is_silent_until_it_goes_on(own: ZooKeeperServer) -> None:
    with own.client() as client:
        own.pause()
        asked = client.exists_async("/zookeeper")
        with pytest.raises(KazooTimeoutError):
            asked.get(timeout=0.3)
        own.resume()
        assert asked.get(timeout=5)


def test_a_paused_server_can_be_ended(own: ZooKeeperServer) -> None:
    own.pause()
    own.close()
    assert not own.running
    assert not own.folder.exists()


# Ensembles ------------------------------------------------------------------------------------------------------------


def write(client: KazooClient) -> bool:
    """Whether it was done."""
    try:
        client.create_async("/written-", sequence=True).get(timeout=1)
    except (KazooException, KazooTimeoutError):
        return False
    return True


def test_an_ensemble_has_one_leader_and_two_that_follow(ensemble: Ensemble) -> None:
    assert ensemble.leader().mode == "leader"
    assert ensemble.follower().mode == "follower"
    with ensemble.client() as client:
        assert write(client)


def test_the_death_of_its_leader_makes_another(ensemble: Ensemble) -> None:
    first = ensemble.leader()
    first.kill()
    assert ensemble.leader() is not first
    first.restart()
    ensemble.all_serve()


@pytest.mark.parametrize("who", [Ensemble.leader, Ensemble.follower], ids=["leader", "follower"])
def test_who_is_cut_off_serves_its_clients_for_a_while_and_no_writes(ensemble: Ensemble, who: object) -> None:
    assert callable(who)
    server: ZooKeeperServer = who(ensemble)
    with server.client() as client:
        assert write(client)
        ensemble.cut_off(server)
        assert client.exists("/zookeeper")
        assert not write(client)
        until(lambda: server.mode == "")
        with ensemble.client() as other:
            assert ensemble.leader() is not server
            assert write(other)
        ensemble.join(server)
        ensemble.all_serve()
        until(lambda: write(client))


# Whose they are -------------------------------------------------------------------------------------------------------


def script(text: str, run: str) -> "subprocess.Popen[str]":
    """Another process of that run."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import os\nfrom support.zookeeper_servers import *\n{text}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), RUN: run},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


TELL = "server = zookeeper_server()\nprint(server.pid, server.folder, flush=True)\ninput()"


def test_all_processes_of_a_run_share_one_server_until_the_last_has_ended() -> None:
    run = uuid.uuid4().hex
    with script(TELL, run) as one, script(TELL, run) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        told = one.stdout.readline()
        assert other.stdout.readline() == told
        folder = Path(told.split()[1])
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert os.kill(int(told.split()[0]), 0) is None
        other.communicate("\n")
    until(lambda: not folder.parent.exists())
    assert workers_in(folder) == []


OWN = "with Ensemble() as all:\n print(*[server.folder for server in all.servers], flush=True)\n input()"


def test_a_killed_test_process_leaves_no_server_of_its_own() -> None:
    with script(OWN, os.environ.get(RUN, "")) as process:
        assert process.stdout is not None
        folders = [Path(name) for name in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
    assert len(folders) == 3
    until(lambda: not any(folder.exists() for folder in folders))
    assert [workers_in(folder) for folder in folders] == [[], [], []]
