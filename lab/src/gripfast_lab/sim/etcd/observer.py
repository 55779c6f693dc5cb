"""What the cluster really did, for the checkers: by books of its own, made from the log alone.

A lock is held by the oldest key of its queue, once that was written without `waits`. The order of a queue is etcd's own
(create revisions), so a store that grants to another one is found out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gripfast.core.kept import DONE, MIN_HOLD, kept
from gripfast.stores import holder
from gripfast.stores.etcd.keys import Keys, owner_in, queue_in
from gripfast.stores.etcd.messages import PUT, KeyValue, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, TxnRequest
from gripfast_lab.sim.clocks import RATE_PROMISED
from gripfast_lab.sim.etcd.cluster import Cluster, Entry, Proposal
from gripfast_lab.sim.etcd.state import Refused
from gripfast_lab.sim.history import WORLD

ROOT = "gripfast/"
SEPARATOR = ":"
"""In owner ids, between the process and its actor: a slash would be one of the key's."""
KEYS = Keys(ROOT)


class Book(NamedTuple):
    """What is known of a key."""

    name: str
    owner: str
    create: int
    waits: bool
    token: int
    is_detached: bool
    made_at: float
    """When it was created, by the world's clock; and how long the request for that had been under way."""
    delay: float


class Observer:
    def __init__(
        self, cluster: Cluster, note: Callable[..., None], created: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        """`created`: told of each new key's name and owner."""
        self.books: dict[bytes, Book] = {}
        self._cluster = cluster
        self._note = note
        self._created = created
        self._granted: dict[int, tuple[float, int]] = {}
        """By lease: when it was, and for how long."""
        self.gone: dict[str, float] = {}
        """When the key of an owner was deleted that had been granted."""
        self.handed: dict[tuple[str, int], float] = {}
        """When an owner got the lock, with this token."""
        self._waited: dict[str, float] = {}
        """When the key of an owner that waits was last written."""
        self._adopted: dict[bytes, str] = {}
        """Keys that a restored backup shows as the former owner's, and who had adopted them: it may release them."""
        cluster.agreed = self.agreed

    def agreed(self, entry: Entry) -> None:
        proposal, answer = entry.proposal, entry.answer
        if isinstance(proposal.request, LeaseGrantRequest) and not isinstance(answer, Refused):
            self._granted[proposal.request.id] = self._cluster.world.now, answer.ttl
        for event in entry.events:
            name = KEYS.name_in(queue_in(event.kv.key))
            if name is not None and owner_in(event.kv.key):
                if event.type == PUT:
                    self._put(name, event.kv, proposal)
                else:
                    self._deleted(event.kv.key, proposal)

    def _put(self, name: str, kv: KeyValue, proposal: Proposal) -> None:
        now, before = self._cluster.world.now, self.books.get(kv.key)
        found, is_new = holder.read_object(kv.value), False
        owner = found.get("owner", owner_in(kv.key))
        if before is not None and owner != before.owner:
            self._adopted.pop(kv.key, None)
        if before is None or before.create != kv.create_revision:
            is_new = True
            before = Book(name, owner, kv.create_revision, True, 0, False, now, now - proposal.sent)
        after = before._replace(owner=owner, waits=found.get("waits") is True, is_detached=bool(found.get("detached")))
        if not after.waits and (before.waits or owner != before.owner) and kept(owner) is None:
            after = after._replace(token=kv.mod_revision)
        self.books[kv.key] = after
        self._tell(kv.key, before, after, proposal)
        self._look_at_lease(kv, name, found)
        if is_new and kept(owner) is None:
            self._created(name, owner)
        if is_new and owner in self._waited:
            self._note(owner, name, "displaced", ttl=now - self._waited[owner])
        if after.waits:
            self._waited[owner] = now
        else:
            self._waited.pop(owner, None)

    def _look_at_lease(self, kv: KeyValue, name: str, found: Mapping[str, Any]) -> None:
        """Whoever dies with this key leaves the name taken for so long. A detach changes no lease."""
        ttl, lasts = found.get("ttl", 0.0), self._granted[kv.lease][1] if kv.lease else math.inf
        if lasts > max(math.ceil(ttl), self._cluster.least_ttl) and not found.get("detached"):
            self._note("cluster", name, "left", note=f"a key {kv.key!r} under a lease of {lasts} s for {ttl:g} s")

    def _tell(self, key: bytes, before: Book, after: Book, proposal: Proposal) -> None:
        if after.waits:
            return
        if kept(after.owner) is not None:
            if after.owner != before.owner:
                until, age = self.keeps_until(key), self._age(key)
                self._note(before.owner, after.name, "kept", token=before.token, until=until, ttl=age, note=after.owner)
        elif before.waits or after.owner != before.owner:
            if not before.waits and not before.is_detached:
                self._note(after.owner, after.name, "removed", note=before.owner)
            queue = " ".join(self.books[each].owner for each in self.queue(after.name))
            self.gone.pop(after.owner, None)
            self.handed[after.owner, after.token] = self._cluster.world.now
            self._note(after.owner, after.name, "handed", token=after.token, note=queue)

    def _deleted(self, key: bytes, proposal: Proposal) -> None:
        book, adopter = self.books.pop(key, None), self._adopted.pop(key, "")
        if book is None:
            return
        is_its_own = process_of(book.owner) == proposal.process
        if book.waits:
            is_by_others = not is_its_own and not isinstance(proposal.request, LeaseRevokeRequest)
            if is_its_own:
                self._waited.pop(book.owner, None)
            elif is_by_others and not _is_forced(proposal.request):
                self._note(f"{proposal.process}{SEPARATOR}", book.name, "removed", note=f"{book.owner}, which waits")
            return
        self.gone[book.owner] = self._cluster.world.now
        if isinstance(proposal.request, LeaseRevokeRequest):
            return
        if _is_forced(proposal.request):
            if kept(book.owner) == "done":
                self._note("an operator", book.name, "removed", note=book.owner)
            self._note(WORLD, book.name, "forgot", until=self._cluster.world.now)
        elif adopter and process_of(adopter) == proposal.process:
            return
        elif not is_its_own:
            self._note(f"{proposal.process}{SEPARATOR}", book.name, "removed", note=book.owner)
        elif kept(book.owner) is None:
            self._note(book.owner, book.name, "freed", token=book.token)

    # What is there --------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> list[bytes]:
        keys = [key for key, book in self.books.items() if book.name == name]
        return sorted(keys, key=lambda key: self.books[key].create)

    def key_of(self, name: str, owner: str) -> bytes | None:
        return next((key for key, book in self.books.items() if (book.name, book.owner) == (name, owner)), None)

    def keeps_until(self, key: bytes) -> float:
        """The true moment until which it stays there, unless somebody deletes it: what the leader counts, if there is
        one, and not before any leader would."""
        cluster = self._cluster
        kv, leader, least = cluster.state.keys[key], cluster.leader, self.keeps_at_least(key)
        if leader is None or not cluster.has_leader:
            return float("inf")
        ends = leader.lessor.ends.get(kv.lease)
        return least if ends is None else max(least, leader.clock.true_at(ends))

    def keeps_at_least(self, key: bytes) -> float:
        """The same for any leader: nobody may rely on more. That the lease was counted anew is luck."""
        granted_at, ttl = self._granted[self._cluster.state.keys[key].lease]
        return granted_at + ttl / (1.0 + RATE_PROMISED)

    def _age(self, key: bytes) -> float:
        """Of its lease, which was granted when it was requested that it be kept."""
        return self._cluster.world.now - self._granted[self._cluster.state.keys[key].lease][0]

    def lasts_until(self, key: bytes) -> float:
        """The true moment at which its lease is over, unless a leader was elected since."""
        granted_at, ttl = self._granted[self._cluster.state.keys[key].lease]
        return granted_at + ttl * (1.0 + RATE_PROMISED)

    def lose(self) -> None:
        """A backup was restored: what is there is read anew."""
        books, self.books = self.books, {}
        for key, kv in self._cluster.state.keys.items():
            if key in books:
                found = holder.read_object(kv.value)
                owner = found.get("owner", owner_in(key))
                if owner != books[key].owner:
                    self._adopted[key] = books[key].owner
                self.books[key] = books[key]._replace(
                    create=kv.create_revision,
                    owner=owner,
                    waits=found.get("waits") is True,
                    is_detached=bool(found.get("detached")),
                )


def process_of(owner: str) -> str:
    """Of a marker, too."""
    return owner.removeprefix(MIN_HOLD).removeprefix(DONE).partition(SEPARATOR)[0]


def _is_forced(request: Any) -> bool:
    return isinstance(request, TxnRequest) and any(
        isinstance(op, PutRequest) and b"%broken/" in op.key for op in request.success
    )
