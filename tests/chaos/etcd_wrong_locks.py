"""Locks on etcd that believe what they should not, in the same queue as Gripfast's: what tests of honest ones must see.

Both keep their lease alive, as nearly all clients do. A keep-alive is dated by its sending, and answered by whichever
member takes itself for the leader. One of the two lets a linearizable read of its own key follow, under the same term.
"""

import secrets
import threading
import uuid
from typing import Any

from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.keys import Keys
from gripfast.stores.etcd.messages import (
    DeleteRangeRequest,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    RangeRequest,
    RangeResponse,
    TxnResponse,
)
from gripfast_lab.verify.notes import Notes

ANSWERS_WITHIN = 1.0


class KeptAlive:
    """Held, as far as it knows, from the moment this is made until it is closed. It looks like a lease."""

    def __init__(self, endpoint: str, root: str, name: str, ttl: int, notes: Notes, reads: bool) -> None:
        """`endpoint`: the only member that it knows. `reads`: its own key, after each keep-alive."""
        self.name = name
        self._notes = notes
        self.ttl = float(ttl)
        self._endpoint = endpoint
        self._reads = reads
        self._link = BlockingLink(Dialer([endpoint], ANSWERS_WITHIN))
        self._lease = secrets.randbits(62) + 1
        self._key = Keys(root).own(name, uuid.uuid4().hex)
        notes.asked(name, 0.0, ANSWERS_WITHIN, ttl=self.ttl, renews=True)
        self._deadline = boottime() + ttl
        self.token = self._claim(Keys(root).queue(name))
        notes.answered(name, self)
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew_until_over)
        self._renewing.start()

    @property
    def held(self) -> bool:
        return self.remaining() > 0.0

    def remaining(self) -> float:
        return max(0.0, self._deadline - boottime())

    def release(self) -> None:
        """If it has the key, it has it no more."""
        if self.held:
            self._notes.note("releasing", self.name)
        self._deadline = 0.0
        self.close()

    def close(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._renewing.join()
        self._ask(DeleteRangeRequest(self._key))
        drive(self._link.close())

    def _claim(self, queue: bytes) -> int:
        self._ask(LeaseGrantRequest(int(self.ttl), self._lease))
        answer = self._ask(protocol.claim(queue, self._key, b"{}", None, self._lease))
        assert isinstance(answer, TxnResponse), answer
        assert answer.succeeded
        return answer.header.revision

    def _renew_until_over(self) -> None:
        while self._renew() and not self._over.wait(self.ttl / 3):
            pass

    def _renew(self) -> bool:
        """False if it is lost. No answer proves nothing."""
        sent = boottime()
        kept = self._ask(LeaseKeepAliveRequest(self._lease))
        if isinstance(kept, LeaseKeepAliveResponse) and not kept.ttl:
            return self._lost()
        seen = self._ask(RangeRequest(self._key)) if self._reads else None
        if isinstance(seen, RangeResponse) and not seen.kvs:
            return self._lost()
        if isinstance(kept, LeaseKeepAliveResponse) and (not self._reads or _same_term(kept, seen)):
            self._deadline = sent + self.ttl
        return True

    def _lost(self) -> bool:
        if not self._over.is_set():
            self._notes.note("lost", self.name, note="expired")
        self._deadline = 0.0
        return False

    def _ask(self, request: Any) -> Any:
        return drive(self._link.call_at(self._endpoint, request, boottime() + ANSWERS_WITHIN))


def _same_term(kept: LeaseKeepAliveResponse, seen: object) -> bool:
    return isinstance(seen, RangeResponse) and seen.header.raft_term == kept.header.raft_term
