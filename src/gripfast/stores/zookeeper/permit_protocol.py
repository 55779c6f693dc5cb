"""What is kept of semaphores and read/write locks, who of a queue has permits, and whom the others wait for: all pure.

Each kind has a node of its own below the root, and below that a node for each name. Its contenders are ephemeral nodes,
in the order of their numbers:

| node | who |
|---|---|
| `<owner>__wait2__<number>` | a waiter for two permits of a semaphore |
| `<owner>__held0-1.5__<number>` | a holder of the permits 0, 1 and 5 |
| `<owner>__read__<number>`, `<owner>__write__<number>` | a reader, a writer, whether they wait or not |

So the list of the children tells all. A node that changes (a waiter gets its permits, a writer becomes a reader) is
deleted and made under its new name, with the same number, in one transaction.

The data of a semaphore's name is the limit in force. It is written anew with every grant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import RolledBackError, RuntimeInconsistency

from gripfast.core.ports import RW_LIMIT, Kind, PermitHolder, Share
from gripfast.stores import holder, permit_queue
from gripfast.stores.zookeeper import protocol

NOTES_MOST = 100
"""Owners whose note a name keeps: its data is written with every grant."""
NOTES_KEPT = 600.0
"""Seconds."""
READ, WRITE = "__read__", "__write__"
ANY = ""
"""Not one node: a waiter goes on when any of the holders ends."""
_CONTENDER = re.compile(
    r"^(?P<owner>.+)__(?:(?P<rw>read|write)|wait(?P<n>\d+)|held(?P<slots>[\d.-]+))__(?P<number>\d{10}|-\d{9,10})$",
    re.DOTALL,
)


class Permit(NamedTuple):
    """A contender."""

    number: int
    node: str
    owner: str
    n: int
    slots: tuple[int, ...] = ()
    """Not empty: it holds these permits of a semaphore."""

    @property
    def has_advanced(self) -> bool:
        """The node that it was before is gone; or it never was another one."""
        return bool(self.slots) or READ in self.node


class View(NamedTuple):
    """A name, as a server has shown it. Its data was read before its contenders: whoever has got permits since then has
    written another version."""

    limit: int
    version: int
    data: bytes
    queue: list[Permit]

    def find(self, path: str) -> Permit | None:
        node = path.rpartition("/")[2]
        return next((each for each in self.queue if each.node == node), None)


# Nodes ----------------------------------------------------------------------------------------------------------------


def above(root: str, kind: Kind) -> str:
    """Of the names of this kind. No lock's name is encoded like that: behind a percent sign it has two digits."""
    return f"{root}/%{kind}"


def parent(root: str, kind: Kind, name: str) -> str:
    return f"{above(root, kind)}/{protocol.encoded(name)}"


def new_contender(owner: str, share: Share) -> str:
    """Without its number."""
    if share.kind == "semaphore":
        return f"{owner}__wait{share.n}__"
    return f"{owner}{WRITE if share.n == RW_LIMIT else READ}"


def as_holder(waiter: Permit, slots: Sequence[int]) -> str:
    number = waiter.node.rpartition("__")[2]
    return f"{waiter.owner}__held{_write_slots(slots)}__{number}"


def as_reader(path: str) -> str:
    """The same path if it is a reader's."""
    before, is_writer, number = path.rpartition(WRITE)
    return f"{before}{READ}{number}" if is_writer else path


def _write_slots(slots: Iterable[int]) -> str:
    ranges = permit_queue.ranges_of(slots)
    return ".".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _read_slots(text: str) -> tuple[int, ...]:
    slots: list[int] = []
    for each in text.split("."):
        low, _, high = each.partition("-")
        slots += range(int(low), int(high or low) + 1)
    return tuple(slots)


def contenders(children: Iterable[str]) -> list[Permit]:
    """All of them, in their order."""
    found = [_read(match) for child in children if (match := _CONTENDER.match(child))]
    return protocol.by_number(found)


def _read(match: re.Match[str]) -> Permit:
    number, node, owner = int(match["number"]), match[0], match["owner"]
    if match["rw"]:
        return Permit(number, node, owner, 1 if match["rw"] == "read" else RW_LIMIT)
    if match["slots"]:
        slots = _read_slots(match["slots"])
        return Permit(number, node, owner, len(slots), slots)
    return Permit(number, node, owner, int(match["n"]))


def newest_first(children: Iterable[str]) -> list[Permit]:
    """For one who looks for its own."""
    return sorted(contenders(children), key=lambda each: not each.has_advanced)


def in_order(children: Iterable[str]) -> list[Permit]:
    """The queue, the first one first. A deleted node may reappear (`deleted.py`): what an owner was before it has
    changed does not count."""
    queue = contenders(children)
    advanced = {each.owner for each in queue if each.has_advanced}
    return [each for each in queue if each.has_advanced or each.owner not in advanced]


# Who has permits ------------------------------------------------------------------------------------------------------


def waits_for(queue: Sequence[Permit], mine: Permit, limit: int) -> str | None:
    """Which node must end before this contender can go on; None if it has its permits, or may take them."""
    if mine.slots:
        return None
    place = next((place for place, each in enumerate(queue) if each.node == mine.node), len(queue))
    before = permit_queue.waits_for(queue, place, mine.n, limit)
    return ANY if before == permit_queue.ANY else None if before is None else before.node


def newcomer(share: Share) -> Permit:
    """Behind everybody else."""
    return Permit(0, "", "", share.n)


def free_slots(view: View, n: int) -> tuple[int, ...]:
    """The lowest ones."""
    return permit_queue.free_slots(view.queue, view.limit, n)


def holders(queue: Sequence[Permit], kind: Kind) -> list[Permit]:
    if kind == "semaphore":
        return [each for each in queue if each.slots]
    writer = next((place for place, each in enumerate(queue) if each.n == RW_LIMIT), len(queue))
    return list(queue[: max(writer, 1)])


# Data -----------------------------------------------------------------------------------------------------------------


def write_name(limit: int | None, notes: Mapping[str, str] | None = None, noted: float = 0.0) -> bytes:
    """`limit`: of a semaphore. `noted`: when there was the last note, by the wall clock."""
    found: dict[str, Any] = {} if limit is None else {"limit": limit}
    if notes:
        found |= {"notes": notes, "noted": noted}
    return protocol.MARK_OF_PERMITS + b" " + json.dumps(found).encode()


def read_limit(data: bytes) -> int:
    """0 if it has none."""
    limit = _read_name(data).get("limit")
    return limit if isinstance(limit, int) else 0


def read_notes(data: bytes) -> dict[str, str]:
    notes = _read_name(data).get("notes")
    return notes if isinstance(notes, dict) else {}


def read_note(data: bytes, owner: str) -> str | None:
    """None if there is none for this owner."""
    note = read_notes(data).get(owner)
    return note if isinstance(note, str) else None


def with_limit(data: bytes, limit: int) -> bytes:
    return write_name(limit, read_notes(data), _noted(data))


def with_notes(data: bytes, owners: Iterable[str], note: str, now: float) -> bytes:
    notes = {**read_notes(data), **dict.fromkeys(owners, note)}
    last = {owner: notes[owner] for owner in list(notes)[-NOTES_MOST:]}
    return write_name(read_limit(data) or None, last, now)


def without_old_notes(data: bytes, now: float) -> bytes:
    """Their owners, if they live, have read them long before."""
    if not read_notes(data) or now < _noted(data) + NOTES_KEPT:
        return data
    return write_name(read_limit(data))


def _noted(data: bytes) -> float:
    noted = _read_name(data).get("noted")
    return noted if isinstance(noted, int | float) else 0.0


def _read_name(data: bytes) -> dict[str, Any]:
    return holder.read_object(data.removeprefix(protocol.MARK_OF_PERMITS)) if protocol.is_of_permits(data) else {}


def with_token(details: bytes, token: int) -> bytes:
    """The details of a reader that was a writer, and has its token from then."""
    return json.dumps({**holder.read_object(details), "token": token}, ensure_ascii=False).encode()


def permit_holder(each: Permit, got: tuple[bytes, Any]) -> PermitHolder:
    """`got`: the node's data, and what the server says about it."""
    info = protocol.lock_info("", each.owner, got, 0)
    token = holder.read_object(got[0]).get("token")
    return PermitHolder(
        each.owner, each.n, each.slots, token if isinstance(token, int) else info.token, info.label, info.host,
        info.pid, info.since, info.expires_in,
    )  # fmt: skip


def first_error(answer: Any) -> BaseException | None:
    """Of a transaction: why it was not done."""
    if isinstance(answer, BaseException):
        return answer
    errors = [each for each in answer if isinstance(each, BaseException)]
    causes = [each for each in errors if not isinstance(each, RolledBackError | RuntimeInconsistency)]
    return next(iter(causes or errors), None)
