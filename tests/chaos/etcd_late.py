"""Claims that are given up while the leader of etcd is stopped, and land when it goes on.

All who claim are connected to one member: to the leader, which finds their requests when it goes on, or to a follower,
which has passed them on to the leader. Their locks differ by how they give up: some have clients that go on, and clean
up; some close theirs; tasks are cancelled; processes are killed.

For how long a ttl is, the cluster's own clock decides: when all is over, a probe is put under a lease that is a little
longer. Once it has expired, nothing else may be there.
"""

import asyncio
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import gripfast
from gripfast.machine import boottime
from gripfast.stores.etcd import leases
from support.etcd_servers import BIN, EtcdServer, Trio, url_of
from support.processes import Worker
from support.waiting import until

TTL = 4
LONGER = TTL + 2
"""Seconds, of the probe: etcd looks twice a second for leases that are over, and revokes them in any order."""
SLOWEST = 60.0
"""Seconds: only a hang takes that long."""
STOPPED = 1.2
"""Seconds, in which no other leader is elected."""
GIVES_UP = 0.4
KINDS = ("goes on", "closes", "is cancelled", "is killed")
EACH = 4
"""Claims of each kind, in one round."""
CLAIMANT = str(Path(__file__).with_name("etcd_claimant.py"))


class Watcher:
    """What becomes of all keys below a root, as etcdctl tells it."""

    def __init__(self, member: EtcdServer, root: str) -> None:
        self.stays: dict[str, float] = {}
        """Seconds, of those that are gone."""
        self.there: dict[str, float] = {}
        """Since when, of the others."""
        self.left: dict[str, list[str]] = {}
        """By key: which others were there when it was deleted."""
        command = [str(BIN / "etcdctl"), f"--endpoints={member.address}", "watch", "--prefix", root]
        self._etcdctl = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"ETCDCTL_API": "3"})
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        until(lambda: self._hears(member, f"{root}first"), within=SLOWEST)

    def _hears(self, member: EtcdServer, first: str) -> bool:
        member.ctl("put", first, "")
        member.ctl("del", first)
        return first in self.stays

    def _read(self) -> None:
        assert self._etcdctl.stdout is not None
        what = ""
        for line in self._etcdctl.stdout:
            if what:
                self._note(what, line.strip(), boottime())
                what = ""
            elif line.strip() in ("PUT", "DELETE"):
                what = line.strip()

    def _note(self, what: str, key: str, at: float) -> None:
        if what == "PUT":
            self.there.setdefault(key, at)
        elif key in self.there:
            since = self.there.pop(key)
            self.left[key] = [other for other in self.there if not other.endswith("/%layout")]
            self.stays[key] = max(at - since, self.stays.get(key, 0.0))

    def close(self) -> None:
        self._etcdctl.kill()
        self._reading.join()
        self._etcdctl.communicate()


class Round:
    def __init__(self, trio: Trio, is_direct: bool) -> None:
        """`is_direct`: they are connected to the leader itself."""
        self._leader = trio.leader()
        follower, self._other = trio.followers()
        self._member = self._leader if is_direct else follower
        self._root = f"late-{uuid.uuid4().hex}/"
        self._url = url_of([self._member.address], root=self._root)
        self._watcher: Watcher

    def play(self) -> dict[str, list[float]]:
        """By kind, of all that have landed: for how many seconds their keys have been there."""
        with ExitStack() as closing:
            self._watcher = Watcher(self._other, self._root)
            closing.callback(self._watcher.close)
            victim = closing.enter_context(Worker(CLAIMANT, self._url, TTL, *names("is killed")))
            victim.expect("ready")
            closing.enter_context(leases_stay_young())
            asyncio.run(self._claim(victim))
            left = self._left_when_a_probe_is_gone(f"{self._root}probe")
            assert not left, f"there for longer than {TTL} s: {left}"
            stays = {kind: [stay for name in names(kind) for stay in self._stays(name)] for kind in KINDS}
            self._audit()
        return stays

    def _left_when_a_probe_is_gone(self, probe: str) -> list[str]:
        lease = self._member.ctl("lease", "grant", str(LONGER)).split()[1]
        self._member.ctl("put", probe, "", f"--lease={lease}")
        until(lambda: probe in self._watcher.stays, within=SLOWEST)
        return self._watcher.left[probe]

    async def _claim(self, victim: Worker) -> None:
        """All have a lease of etcd's already, which is young enough: then a claim is a single request."""
        given: dict[str, Any] = {"ttl": TTL, "request_timeout": GIVES_UP}
        goes_on, closes = gripfast.connect(self._url, **given), gripfast.connect(self._url, **given)
        async with gripfast.connect_async(self._url, **given) as cancels:
            with goes_on, closes:
                _warm_up(goes_on, closes)
                await (await cancels.lock("warm-up").acquire(wait=SLOWEST)).release()
                victim.say("warm up")
                victim.expect("warm")
                self._leader.pause()
                ends = boottime() + STOPPED
                try:
                    victim.say("claim")
                    await self._all_give_up(goes_on, closes, cancels)
                    victim.expect("claimed")
                    victim.kill()
                    until(lambda: boottime() >= ends)
                finally:
                    self._leader.resume()
                until(lambda: self._member.is_healthy() and self._other.is_healthy(), within=SLOWEST)

    async def _all_give_up(self, goes_on: Any, closes: Any, cancels: gripfast.AsyncClient) -> None:
        threads = [asyncio.to_thread(_try, goes_on, name) for name in names("goes on")]
        threads += [asyncio.to_thread(_try, closes, name) for name in names("closes")]
        ends = [asyncio.ensure_future(each) for each in threads]
        tasks = [asyncio.ensure_future(cancels.lock(name).acquire()) for name in names("is cancelled")]
        await asyncio.wait(tasks, timeout=GIVES_UP)
        for task in tasks:
            task.cancel()
        await asyncio.wait([*tasks, *ends])
        await asyncio.to_thread(closes.close)

    def _audit(self) -> None:
        """Nobody has any of the locks."""
        with gripfast.connect(url_of([self._other.address], root=self._root), ttl=30.0) as client:
            for name in (name for kind in KINDS for name in names(kind)):
                with client.lock(name).acquire(wait=0.0):
                    pass

    def _stays(self, name: str) -> list[float]:
        return [stay for key, stay in self._watcher.stays.items() if key.startswith(f"{self._root}{name}/")]


@contextmanager
def leases_stay_young() -> Iterator[None]:
    """For longer than a round takes on a busy machine."""
    usual = {name: getattr(leases, name) for name in ("EARLY", "OLDEST")}
    vars(leases).update(dict.fromkeys(usual, 0.9))
    try:
        yield
    finally:
        vars(leases).update(usual)


def names(kind: str) -> list[str]:
    return [f"{kind} {number}" for number in range(EACH)]


def _warm_up(*clients: gripfast.Client) -> None:
    for client in clients:
        client.lock("warm-up").acquire(wait=SLOWEST).release()


def _try(client: gripfast.Client, name: str) -> None:
    with suppress(gripfast.StoreUnavailable, gripfast.LockTimeout, gripfast.ClientClosed):
        client.lock(name).acquire(wait=GIVES_UP)
