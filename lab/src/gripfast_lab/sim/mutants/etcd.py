"""Bugs in the lock on etcd: what other libraries do, and what this one could."""

from __future__ import annotations

from gripfast.stores.etcd import protocol, watching
from gripfast.stores.etcd.calling import Members, Tries
from gripfast.stores.etcd.inspection import Inspection
from gripfast.stores.etcd.keeping import Keeping
from gripfast.stores.etcd.leases import Lease, Leases
from gripfast.stores.etcd.meeting import Cluster
from gripfast.stores.etcd.protocol import Place
from gripfast.stores.etcd.record import Record
from gripfast.stores.etcd.store import EtcdStore
from gripfast_lab.sim.mutants.planting import Edit, Mutant, Rewrite

_NEW_LEASE = "lease = await requests.leases.for_renewal(max(ttls), until, each)"
_KEPT_ALIVE = """from gripfast.stores.etcd.messages import LeaseKeepAliveRequest
    known = [each for each in group if each[1].lease is not None and each[1].lease.seconds >= each[0].ttl]
    for hold, record in known:
        answer = await requests.link.call(LeaseKeepAliveRequest(record.lease.id), until, each)
        if isinstance(answer, Fault | Refusal):
            results[hold.owner] = failed(answer)
        else:
            results[hold.owner] = None if answer.ttl else "expired"
"""
"""Unless the lease is too short for an extension."""
_AND_READ = """    for hold, record in known:
        if results[hold.owner] is None:
            found = await requests.link.call(RangeRequest(record.key), until, each)
            if isinstance(found, Fault | Refusal):
                results[hold.owner] = failed(found)
            elif not found.kvs:
                results[hold.owner] = "expired"
"""
_THE_OTHERS = f"""    group = [each for each in group if each not in known]
    if not group:
        return
    {_NEW_LEASE}"""
_KEPT_UNDER = "lease = await requests.leases.for_renewal(marker.seconds, until, each)"
_KEPT_UNDER_OLD = f"""import math
    old = requests.leases._current.get(math.ceil(marker.seconds)) if kept(marker.owner) == "done" else None
    if old is not None:
        lease = old
    else:
        {_KEPT_UNDER}"""
_MOVED = "return place._replace(mod=mine.kv.mod_revision) if mine.kv.lease == lease else mine"
_EXISTS = "return answer  # type: ignore[no-any-return]"


def _mutant(name: str, text: str, *bugs: Edit | Rewrite) -> Mutant:
    return Mutant(name, "etcd", text, bugs, "etcd")


ETCD = (
    _mutant(
        "no mod compare",
        "A renewal that arrives late finds the key that it knows, and puts it under an old lease.",
        Edit(Place.is_mine, ", Compare(MOD, self.key, EQUAL, self.mod)", ","),
    ),
    _mutant(
        "no compare at all",
        "A renewal creates the key anew if it is gone.",
        Edit(
            Place.is_mine,
            "return Compare(CREATE, self.key, EQUAL, self.create), Compare(MOD, self.key, EQUAL, self.mod)",
            "return (Compare(CREATE, self.key, GREATER, -1),)",
        ),
    ),
    _mutant(
        "lease dated by its answer",
        "A lease counts from when its client received the answer.",
        Edit(Leases._grant, "seconds=max(seconds, answer.ttl)", "seconds=max(seconds, answer.ttl), sent=boottime()"),
    ),
    _mutant(
        "existing lease dated by its answer",
        "A client whose lease exists already takes it for a new one.",
        Edit(Leases._grant, _EXISTS, f"{_EXISTS}\n    else:\n        lease = lease._replace(sent=boottime())"),
    ),
    _mutant(
        "old lease dated by the claim",
        "A key counts from when it was claimed, however old its lease is.",
        Edit(Lease.date, "return min(now,", "return max(now,"),
    ),
    _mutant(
        "renewal under the old lease",
        "A renewal puts the key under the lease that it has.",
        Edit(Leases.for_renewal, "lease.date(ttl, now) >= now", "True"),
    ),
    _mutant(
        "renewal by keep-alive",
        "A renewal keeps the lease alive, and believes the answer of one member.",
        Edit(EtcdStore._renew, _NEW_LEASE, f"{_KEPT_ALIVE}{_THE_OTHERS}"),
    ),
    _mutant(
        "keep-alive and a read",
        "A renewal keeps the lease alive, and then reads the key.",
        Edit(EtcdStore._renew, _NEW_LEASE, f"{_KEPT_ALIVE}{_AND_READ}{_THE_OTHERS}"),
    ),
    _mutant(
        "unmoved key is believed",
        "A key that was not moved counts as renewed.",
        Edit(
            EtcdStore._move,
            "results[hold.owner] = await self.why(record, hold.owner, until)",
            "results[hold.owner] = None",
        ),
    ),
    _mutant(
        "key under another lease counts as moved",
        "A holder that finds its key changed takes that for its own renewal.",
        Edit(protocol.read_move, _MOVED, "return place._replace(mod=mine.kv.mod_revision)"),
    ),
    _mutant(
        "create revision as token",
        "The token is the revision at which the waiter joined.",
        Edit(Record.won, "self.token = self.token or revision", "self.token = self.token or create"),
    ),
    _mutant(
        "token of the last write",
        "A client that claims twice gets the token of the second write.",
        Edit(Record.won, "self.token = self.token or revision", "self.token = revision"),
    ),
    _mutant(
        "queue in the order of names",
        "A waiter takes the lock if no key with a smaller name waits.",
        Edit(
            protocol.advance,
            "is_first = Compare(CREATE, queue, GREATER, place.create - 1, keys.after(queue))",
            "is_first = Compare(CREATE, queue, EQUAL, 0, place.key)",
        ),
    ),
    _mutant(
        "woken is granted",
        "A waiter that is notified takes the lock without a look at who is before it.",
        Edit(protocol.advance, "(*place.is_mine(), is_first)", "place.is_mine()"),
    ),
    _mutant(
        "no re-reading",
        "A waiter relies on its watch alone.",
        Edit(watching.again_in, "return min(SLOW_PACE * random.uniform(0.75, 1.0), ttl / 3)", "return 3600.0"),
    ),
    _mutant(
        "waiter is not notified",
        "A waiter relies on its own re-reading alone.",
        Edit(EtcdStore._queued, "if claim.inbox is None:", "if True:"),
    ),
    _mutant(
        "claim is not idempotent",
        "A claim that is repeated writes its key again.",
        Edit(
            protocol.claim,
            "TxnRequest((is_new,), (PutRequest(key, waiting, lease),)",
            "TxnRequest((), (PutRequest(key, waiting, lease),)",
        ),
        Edit(protocol.read_claim, "if kv.key != key)", "if kv.key != key or len(last_two[0].kvs) == 1)"),
    ),
    _mutant(
        "try leaves its key",
        "A try that finds the lock taken joins the queue.",
        Edit(EtcdStore._step, "joins=claim.inbox is not None", "joins=True"),
    ),
    _mutant(
        "clean-up is not repeated",
        "A claim that takes effect behind its clean-up is left.",
        Edit(EtcdStore._left, "record.may_take_effect(boottime())", "False"),
    ),
    _mutant(
        "unanswered claim counts as refused",
        "A claim that got no answer is not cleaned up.",
        Edit(EtcdStore._step, "return failed(answer)", "return failed(answer, was_sent=False)"),
    ),
    _mutant(
        "clean-up of the whole queue",
        "A clean-up deletes all keys of the lock, if its own is there.",
        Edit(
            protocol.delete,
            "(DeleteRangeRequest(place.key),)",
            "(DeleteRangeRequest(keys.queue_in(place.key), keys.after(keys.queue_in(place.key))),)",
        ),
    ),
    _mutant(
        "answered request forgets an earlier one",
        "A client that has got an answer does not clean up after an earlier claim that got none.",
        Edit(EtcdStore.sent, "record.is_late = was_late", "record.is_late = False"),
    ),
    _mutant(
        "repeated release counts as broken",
        "A release that an earlier try of it has carried out says that the lease was lost.",
        Edit(EtcdStore.release, "self._broken if was_repeated else self.why", "self.why"),
    ),
    _mutant(
        "first try counts for all",
        "A release whose first try was not sent does not look at what became of the second.",
        Edit(Tries.take, "if answer.was_sent:", "if False:"),
    ),
    _mutant(
        "unknown detach is left",
        "A detach that got no answer is not cleaned up, although nobody has the text.",
        Edit(EtcdStore._own, "not record.is_detaching", "True"),
    ),
    _mutant(
        "drift of the ttl alone",
        "A key under a lease that is longer than its ttl counts on a leader whose clock is not off by more than that.",
        Edit(Lease.date, "self.ends - rules.drift(self.seconds) - (ttl - rules.drift(ttl))", "self.ends - ttl"),
    ),
    _mutant(
        "whoever has the key",
        "A key that was left to a marker or an adopter still counts as its owner's.",
        Edit(protocol.still_mine, "found.owner == owner and not found.is_detached", "True"),
    ),
    _mutant(
        "waiter without a lease",
        "The key of a waiter that died stays in the queue.",
        Edit(protocol.claim, "PutRequest(key, waiting, lease)", "PutRequest(key, waiting)"),
    ),
    _mutant(
        "kept release deletes",
        "A release of a lock with a min_hold, or a record of what is done, frees it.",
        Edit(EtcdStore.release, "if hold.keep is not None:", "if False:"),
    ),
    _mutant(
        "kept without a compare",
        "A record of what is done is written although the lock is gone.",
        Edit(protocol.keep, "TxnRequest(place.is_mine()", "TxnRequest(()"),
    ),
    _mutant(
        "late record moves the marker back",
        "A first record of what is done, which arrives behind its repetition, puts the marker under the older lease.",
        Edit(protocol.keep, "TxnRequest(place.is_mine()", "TxnRequest(place.is_mine()[:1]"),
    ),
    _mutant(
        "adopted from whoever has it",
        "A lock is adopted without a look at who has it.",
        Edit(Keeping.adopt, "if first is None or first.owner not in (hold.owner, claim.owner):", "if first is None:"),
        Edit(Keeping.adopt, "if not is_mine and not first.is_detached:", "if False:"),
    ),
    _mutant(
        "operator forgets what is done",
        "An operator who frees a lock forgets that something was done.",
        Edit(
            Inspection.force_release,
            "(first := protocol.entry(queue.kvs[0])).is_done",
            "(first := protocol.entry(queue.kvs[0])) is None",
        ),
    ),
    _mutant(
        "smaller revision is ignored",
        "A cluster that was restored from a backup is taken for the old one.",
        Edit(Cluster.notice, "if self.id not in (0, header.cluster_id) or has_forgotten:", "if False:"),
    ),
    _mutant(
        "late answer ends new leases",
        "An answer to a request from before a restored backup was noticed counts as another one.",
        Edit(Cluster.notice, "if known.epoch != self.epoch and header.cluster_id in self._seen:", "if False:"),
    ),
    _mutant(
        "refused try forgets an earlier one",
        "A try that was refused does not clean up after an earlier one that got no answer.",
        Edit(EtcdStore._step, "may_follow=record.is_late", "may_follow=False"),
    ),
    _mutant(
        "waiter lets its place expire",
        "A waiter reads again so late that its key has expired.",
        Edit(watching.again_in, "ttl / 3", "ttl * 3"),
    ),
    _mutant(
        "lease twice as long",
        "The lock of a killed holder is free after two ttls.",
        Edit(Leases._grant, "LeaseGrantRequest(seconds, lease.id)", "LeaseGrantRequest(2 * seconds, lease.id)"),
        Edit(Leases._grant, "seconds=max(seconds, answer.ttl)", "seconds=max(seconds, answer.ttl // 2)"),
    ),
    _mutant(
        "member that fails is not left",
        "A client goes on asking the member that does not answer.",
        Edit(Members.leave, "if self.current == endpoint:", "if False:"),
    ),
    _mutant(
        "late claim is awaited for a moment",
        "A claim that a member did not answer is cleaned up after for no longer than that of a caller that has left.",
        Edit(EtcdStore.sent, "record.late_until = lease.ends\n    else:", "record.late_until = 0.0\n    else:"),
    ),
    _mutant(
        "done under an old lease",
        "A record of what is done is put under whatever lease of its length there is.",
        Edit(Keeping.keep, _KEPT_UNDER, _KEPT_UNDER_OLD),
    ),
)
