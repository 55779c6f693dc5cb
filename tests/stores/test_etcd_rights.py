"""The user that docs/etcd.md describes can do all that a client needs, and nothing else; both rights are needed."""

import asyncio
import re
import shlex
from collections.abc import Iterator

import pytest

import gripfast
from stores.test_redis_acl import alive, failures, give_up_waiting, hand_over, keep_and_adopt, look_and_break, share
from support.etcd_servers import EtcdServer
from support.pages import page

ROOT = "root:secret"
USER = "app1:change-me"
WITHIN = 20.0
NAMES = ["nightly", "a/b%c"]


def commands() -> list[list[str]]:
    """The words behind each `etcdctl` of the page's section."""
    section = page("etcd").partition("## Users and rights")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^etcdctl (.*)$", section, re.MULTILINE)]


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    """With the page's user, and some who lack a right each."""
    with EtcdServer("--bcrypt-cost=4") as server:
        server.ctl("user", "add", ROOT)
        server.ctl("user", "grant-role", "root", "root")
        for words in commands():
            server.ctl(*words)
        for right in ("read", "write"):
            server.ctl("role", "add", right)
            server.ctl("role", "grant-permission", right, right, "gripfast/", "--prefix=true")
            server.ctl("user", "add", f"{right}:only")
            server.ctl("user", "grant-role", right, right)
        server.ctl("auth", "enable")
        yield server


def url_as(server: EtcdServer, user: str, query: str = "") -> str:
    return f"etcd://{user}@{server.address}{query}"


@pytest.mark.parametrize("name", NAMES)
def test_everything_works_as_that_user(server: EtcdServer, name: str, caplog: pytest.LogCaptureFixture) -> None:
    url = url_as(server, USER)
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        first = client.lock(name).acquire()
        first.extend()
        hand_over(first, other, name, WITHIN)
        give_up_waiting(client, other, name)
        lost = [look_and_break(client, other, name), share(client, other, name, WITHIN)]
        assert not any(lease.held for lease in lost)  # not dropped before: their losses are told on another thread
        keep_and_adopt(client, other, name)
        with client.election(name, value="me").lead():
            assert other.election(name).leader() is not None
    assert failures(caplog) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_works_on_asyncio_as_that_user(server: EtcdServer, name: str) -> None:
    asyncio.run(alive(url_as(server, USER), name))


@pytest.mark.parametrize("right", ["read", "write"])
def test_either_right_alone_is_not_enough(server: EtcdServer, right: str) -> None:
    with gripfast.connect(url_as(server, f"{right}:only")) as client:
        with pytest.raises(gripfast.StoreUnavailable, match="does not let this user"):
            client.lock("nightly").acquire()


def test_locks_below_another_root_are_out_of_reach(server: EtcdServer) -> None:
    with gripfast.connect(url_as(server, USER, "?root=other/")) as client:
        with pytest.raises(gripfast.StoreUnavailable, match="does not let this user"):
            client.lock("nightly").acquire()
    assert not server.ctl("get", "other/", "--prefix", user=ROOT)
