"""The disk of the leader stalls, for longer than a ttl. Who holds a lock meanwhile, and who believes so?

The leader is replaced and does not know: its raft waits for the disk. It goes on answering keep-alives. And it finds
the leases expired whose keep-alives the new leader gets, so that it has their revocations queued when the disk is back.
In every second stall its log of writes is on another disk than the rest, as large clusters have it, and only that one
stalls. If the whole disk does, the old leader often answers nothing at all.

In each stall there are several holders, and one who waits behind each:

- *stuck* knows only the leader. It can't renew, so it loses the lock: it must stop believing before the next is
  granted;
- *mobile* is connected to the leader, and knows the others: it keeps the lock;
- *follower* knows only a follower: it keeps the lock, whatever the old leader revokes later;
- *keep-alive*, on the leader, and *keep-alive and read*, on a follower, are no locks of Gripfast's
  (`etcd_wrong_locks.py`).
"""

import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import gripfast
from chaos.cutting import COLOURS, Blocking
from chaos.etcd_wrong_locks import KeptAlive
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import PutRequest
from gripfast.stores.faults import Fault
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from gripfast_lab.verify.notes import Notes
from support.etcd_servers import EtcdServer, Trio, url_of
from support.stalled_disk import stalled_disk
from support.waiting import until

TTL = 3.0
STALL = 7.0
"""Seconds at least. On most machines, a new leader is elected within that, counts a lease anew, and lets it expire. And
the old one finds all leases expired that others keep alive."""
AFTER = TTL / 2
"""Seconds in which what the old leader has queued takes effect."""
ENOUGH = TTL / 3
"""Seconds that a renewal may need to find a leader: a member that does not answer may be tried first."""
PROBED = 0.2
PATIENT = 5.0
HONEST = ("stuck", "mobile", "follower")
WRONG = ("keep-alive", "keep-alive and read")


class Seen(NamedTuple):
    """Of one holder, in one stall."""

    kept: bool
    """It still held the lock in the end, and could release it."""
    was_next: bool
    """The next one was granted although it was not released."""
    believed: float
    """Seconds for which it still believed when the next one was granted."""
    could_keep: bool
    """There was a majority, with a leader, long enough before its lease was over."""
    violations: list[str]


class Trial:
    """One that holds, and one that waits."""

    def __init__(self, role: str, name: str, waiter: Blocking, history: list[Event]) -> None:
        self.role = role
        self.name = name
        self.notes = Notes(f"{role}, holder", history.append)
        self.lease: Any = None
        self.release = lambda: None
        self.granted = threading.Event()
        self.believed = self.ends = 0.0
        self.errors: list[BaseException] = []
        self._waiter = waiter
        self.waiting = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        try:
            granted = self._waiter.acquire(self.name, STALL + AFTER + 4 * TTL, TTL)
            self.believed = self.lease.remaining()
            self.granted.set()
            self._waiter.release(granted)
        except BaseException as error:
            self.errors.append(error)
            self.granted.set()

    def look(self) -> None:
        if self.lease.held:
            self.notes.held(self.lease)
            self.ends = now() + self.lease.remaining()

    def end(self) -> bool:
        """Whether it had kept the lock."""
        kept = bool(self.lease.held) and not self.granted.is_set()
        try:
            self.release()
        except gripfast.LeaseLost:
            kept = False
        return kept


class Prober:
    """Writes through a follower, again and again: that tells when there is a leader."""

    def __init__(self, member: EtcdServer) -> None:
        self.written: list[float] = []
        """When those writes were sent that have succeeded."""
        self._member = member
        self._over = threading.Event()
        self._writing = threading.Thread(target=self._write)
        self._writing.start()

    def wrote(self, since: float, until: float) -> bool:
        return any(since < at < until for at in self.written)

    def close(self) -> None:
        self._over.set()
        self._writing.join()

    def _write(self) -> None:
        link = BlockingLink(Dialer([self._member.address], PROBED))
        while not self._over.wait(PROBED / 10):
            at = now()
            answer = drive(link.call_at(self._member.address, PutRequest(b"probe"), boottime() + PROBED))
            if not isinstance(answer, Fault | Refusal):
                self.written.append(at)
        drive(link.close())


class Stalls:
    def __init__(self, trio: Trio, seed: str) -> None:
        self.trio = trio
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self._chance = random.Random(seed)
        self._number = 0

    def one(self, roles: tuple[str, ...] = (*HONEST, *WRONG)) -> None:
        self.trio.all_serve()
        leader, followers = self.trio.leader(), self.trio.followers()
        history: list[Event] = []
        with ExitStack() as closing:
            prober = Prober(followers[0])
            closing.callback(prober.close)
            stage = _Members(closing, leader, followers, history, f"stall-{uuid.uuid4().hex}/")
            trials = [stage.trial(role, self._number) for role in roles]
            stage.all_wait(trials)
            _look_for(self._chance.uniform(0.0, TTL / 3), trials)
            believers = [trial for trial in trials if trial.lease.held]
            assert len(believers) == len(trials), "a lease was lost before anything happened"
            with stalled_disk(leader.etcd, leader.wal if self._number % 2 == 0 else ()):
                began = now()
                _look_for(STALL, trials)
                _look_until(lambda: all(trial.granted.is_set() for trial in trials if trial.role == "stuck"), trials)
            _look_for(AFTER, trials)
            for trial in trials:
                self._note(trial, prober.wrote(began, trial.ends - ENOUGH))
            closing.pop_all().close()
        self._number += 1
        self._judge(trials, history)

    def _note(self, trial: Trial, could_keep: bool) -> None:
        was_next = trial.granted.is_set()
        kept = trial.end()
        trial.waiting.join()
        assert not trial.errors, trial.errors
        self.seen[trial.role].append(Seen(kept, was_next, trial.believed if was_next else 0.0, could_keep, []))

    def _judge(self, trials: list[Trial], history: list[Event]) -> None:
        for trial in trials:
            about = [event for event in history if event.name == trial.name]
            found = violations(about, may_be_unreachable=True)
            self.seen[trial.role][-1].violations.extend(map(str, found))

    def report(self) -> str:
        lines = []
        for role, seen in self.seen.items():
            too_long = sorted(each.believed for each in seen if each.believed > 0.0)
            worst = f", for {too_long[0]:.1f} to {too_long[-1]:.1f} s" if too_long else ""
            kept, lost = sum(each.kept for each in seen), sum(each.was_next for each in seen)
            hopeless = sum(not each.could_keep for each in seen)
            found = f"kept {kept}, no leader in time {hopeless}, next granted {lost}"
            lines.append(f"{role}: {len(seen)} stalls, {found}, believed too long {len(too_long)}{worst}")
        return "\n".join(lines)


class _Members:
    """Where everyone is connected, in one stall."""

    def __init__(
        self, closing: ExitStack, leader: EtcdServer, followers: list[EtcdServer], history: list[Event], root: str
    ) -> None:
        self._closing = closing
        self._leader = leader
        self._follower, self._other = followers
        self._history = history
        self._root = root

    def trial(self, role: str, number: int) -> Trial:
        name = role.replace(" ", "-")
        notes = Notes(f"{role}, waiter", self._history.append)
        waiter = Blocking(self._url(self._other), notes, PATIENT)
        self._closing.callback(waiter.close)
        trial = Trial(role, name, waiter, self._history)
        if role in WRONG:
            self._begin_wrong(trial)
        else:
            self._begin(trial, list(COLOURS)[number % len(COLOURS)])
        trial.waiting.start()
        return trial

    def _begin(self, trial: Trial, colour: str) -> None:
        members = {
            "stuck": [self._leader],
            "mobile": [self._leader, self._follower, self._other],
            "follower": [self._follower],
        }[trial.role]
        holder = COLOURS[colour](self._url(*members), trial.notes, PATIENT)
        self._closing.callback(holder.close)
        trial.lease = holder.acquire(trial.name, PATIENT, TTL)
        trial.release = lambda: holder.release(trial.lease)

    def _begin_wrong(self, trial: Trial) -> None:
        reads = trial.role == "keep-alive and read"
        member = self._follower if reads else self._leader
        lock = KeptAlive(member.address, self._root, trial.name, int(TTL), trial.notes, reads)
        self._closing.callback(lock.close)
        trial.lease, trial.release = lock, lock.release

    def all_wait(self, trials: list[Trial]) -> None:
        """Each lock has one who waits, which has to be seen on the member that it is connected to."""
        with gripfast.connect(self._url(self._other)) as operator:
            until(lambda: all(_waiters(operator, trial.name) == 1 for trial in trials), within=20.0)

    def _url(self, *members: EtcdServer) -> str:
        return url_of([member.address for member in members], root=self._root)


def _waiters(operator: gripfast.Client, name: str) -> int:
    info = operator.inspect(name)
    return info.waiters if info else 0


def _look_for(seconds: float, trials: list[Trial]) -> None:
    ends = now() + seconds
    _look_until(lambda: now() >= ends, trials)


def _look_until(is_over: Callable[[], bool], trials: list[Trial]) -> None:
    """Meanwhile all holders are asked all the time what they believe."""

    def looked() -> bool:
        for trial in trials:
            trial.look()
        return is_over()

    until(looked, within=60.0)
