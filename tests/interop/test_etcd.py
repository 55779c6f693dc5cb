"""`etcdctl lock`, `etcdctl elect` and Gripfast are in one queue, and none can touch what is another's."""

import contextlib
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from support.etcd_servers import BIN, EtcdServer, etcd_server
from support.waiting import until

SOON = 5.0
"""Seconds: far above what is due, and below the pace at which a waiter with a ttl of 30 s looks by itself."""


class Etcdctl:
    """A process of etcdctl that holds a lock, leads, or waits for it."""

    def __init__(self, *words: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [str(BIN / "etcdctl"), f"--endpoints={etcd_server().address}", *words],
            env=os.environ | {"ETCDCTL_API": "3"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    @property
    def has_it(self) -> bool:
        """It prints its key."""
        return bool(self.lines)

    def end(self, by: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(by)
        self.process.wait(20)
        self._reader.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def root() -> str:
    return f"interop-{uuid.uuid4().hex}/"


@pytest.fixture
def client(root: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(etcd_server().url_with(root=root)) as client:
        yield client


@contextlib.contextmanager
def etcdctl(*words: str) -> Iterator[Etcdctl]:
    one = Etcdctl(*words)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def keys_below(server: EtcdServer, prefix: str) -> list[str]:
    """Of a queue, in the order of their creation."""
    found = server.ctl("get", prefix, "--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND")
    return [line for line in found.splitlines() if line]


def in_queue(root: str, number: int) -> None:
    until(lambda: len(keys_below(etcd_server(), f"{root}job/")) == number, within=SOON)


class Acquiring:
    """A thread that acquires the lock."""

    def __init__(self, lock: gripfast.Lock) -> None:
        self.leases: list[gripfast.Lease] = []
        self._thread = threading.Thread(target=lambda: self.leases.append(lock.acquire(wait=30)))
        self._thread.start()

    def lease(self) -> gripfast.Lease:
        self._thread.join(SOON)
        assert self.leases, "it still waits"
        return self.leases[0]


def test_what_etcdctl_holds_nobody_gets_until_it_ends(client: gripfast.Client, root: str) -> None:
    with etcdctl("lock", f"{root}job") as other:
        until(lambda: other.has_it, within=SOON)
        assert client.lock("job").try_acquire() is None
        waiting = Acquiring(client.lock("job"))
        in_queue(root, 2)
        other.end()
        waiting.lease().release()


def test_what_gripfast_holds_and_renews_etcdctl_gets_when_it_is_released(client: gripfast.Client, root: str) -> None:
    lease = client.lock("job", ttl=1).acquire()
    with etcdctl("lock", f"{root}job") as other:
        in_queue(root, 2)
        renewed_at = lease.remaining()
        until(lambda: lease.remaining() < renewed_at, within=SOON)
        until(lambda: lease.remaining() > renewed_at - 0.1, within=SOON)  # renewed: the watch of etcdctl sees a put
        lease.extend()
        assert not other.has_it
        lease.release()
        until(lambda: other.has_it, within=SOON)
        assert client.lock("job").try_acquire() is None


def test_both_stand_in_one_queue(client: gripfast.Client, root: str) -> None:
    lease = client.lock("job").acquire()
    with etcdctl("lock", f"{root}job") as other:
        in_queue(root, 2)
        waiting = Acquiring(client.lock("job"))
        in_queue(root, 3)
        lease.release()
        until(lambda: other.has_it, within=SOON)
        assert not waiting.leases
        other.end()
        assert waiting.lease().token > lease.token
        waiting.lease().release()


def test_a_lock_below_a_name_is_not_in_its_queue(client: gripfast.Client, root: str) -> None:
    """`etcdctl lock a` waits for every key below `a/`."""
    with client.lock("job/part"), client.lock("job%2Fpart"), etcdctl("lock", f"{root}job") as other:
        until(lambda: other.has_it, within=SOON)


def test_what_etcdctl_holds_is_shown_and_can_be_released_by_force(client: gripfast.Client, root: str) -> None:
    with etcdctl("lock", f"{root}job", "--ttl=20") as other:
        until(lambda: other.has_it, within=SOON)
        info = client.inspect("job")
        assert info is not None
        assert f"{root}job/{info.owner}" == other.lines[0]
        assert (info.since, info.pid, info.label) == (None, 0, None)
        assert 10 < info.expires_in <= 20
        assert [each.name for each in client.list()] == ["job"]
        assert client.force_release("job") is True
        client.lock("job").acquire(wait=SOON).release()


def test_an_etcdctl_that_is_killed_holds_for_no_longer_than_its_ttl(client: gripfast.Client, root: str) -> None:
    with etcdctl("lock", f"{root}job", "--ttl=2") as other:
        until(lambda: other.has_it, within=SOON)
        other.end(signal.SIGKILL)
        client.lock("job").acquire(wait=10).release()


def test_a_leader_of_etcdctl_is_the_leader_for_gripfast(client: gripfast.Client, root: str) -> None:
    election = client.election("job", value="ours")
    with etcdctl("elect", f"{root}job", "theirs") as other:
        until(lambda: other.has_it, within=SOON)
        leader: Any = election.leader()
        assert leader.value == "theirs"
        with pytest.raises(gripfast.LockTimeout):
            election.lead(wait=0.2)
        other.end()
        with election.lead(wait=SOON):
            assert election.leader().value == "ours"


def test_etcdctl_does_not_lead_while_gripfast_does(client: gripfast.Client, root: str) -> None:
    with client.election("job", value="ours").lead(), etcdctl("elect", f"{root}job", "theirs") as other:
        in_queue(root, 2)
        assert not other.has_it
        assert client.election("job").leader().value == "ours"
        other.end()
        in_queue(root, 1)
