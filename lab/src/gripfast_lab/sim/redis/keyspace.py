"""The keys of a server, with their values and expiries.

An expiry is a millisecond of the server's wall clock, which may jump. As in Redis, a key is gone once the clock is past
that millisecond, and it is removed by whoever looks at it then: if nobody does before the clock goes back, it is there
again. A real server also removes some at leisure; `sweep` does that.

A value is bytes, a `Hash` or a `SortedSet`; the latter two are never empty. Everything keeps the order in which it
came, so that no answer depends on a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from gripfast_lab.sim.redis.replies import wrong_type


class Hash(dict[bytes, bytes]):
    __slots__ = ()

    def copy(self) -> Hash:
        return Hash(self)


class SortedSet(dict[bytes, float]):
    """Members with their scores."""

    __slots__ = ()

    def copy(self) -> SortedSet:
        return SortedSet(self)

    def in_order(self) -> list[tuple[float, bytes]]:
        return sorted([(score, member) for member, score in self.items()])


Value: TypeAlias = "bytes | Hash | SortedSet"
Snapshot: TypeAlias = "tuple[dict[bytes, Value], dict[bytes, int]]"
Collection = TypeVar("Collection", Hash, SortedSet)


class About(NamedTuple):
    """What a server tells of itself, as INFO does."""

    run_id: bytes
    is_replica: bool
    replid: bytes
    """Which history of writes its data belong to: `master_replid`."""
    followers: int

    def told(self, sections: Sequence[bytes]) -> bytes:
        """Of the lines of these sections, or of all, those that Gripfast reads."""
        role = b"slave" if self.is_replica else b"master"
        texts = {
            b"server": b"# Server\r\nredis_mode:standalone\r\nrun_id:%b\r\n" % self.run_id,
            b"replication": b"# Replication\r\nrole:%b\r\nconnected_slaves:%d\r\nmaster_replid:%b\r\n"
            % (role, self.followers, self.replid),
        }
        wanted = {section.lower() for section in sections} or {b"all"}
        is_all = bool(wanted & {b"all", b"default", b"everything"})
        return b"\r\n".join([text for name, text in texts.items() if is_all or name in wanted])


ALONE = About(b"a" * 40, False, b"b" * 40, 0)


class Keyspace:
    __slots__ = ("_expiries", "_values", "about", "now_us", "publish", "receivers")

    is_read_only = False
    """Commands that write are refused: it is a replica's."""

    def __init__(
        self,
        now_us: Callable[[], int],
        publish: Callable[[bytes, bytes], int] = lambda channel, payload: 0,
        receivers: Callable[[bytes], int] = lambda channel: 0,
        about: Callable[[], About] = lambda: ALONE,
    ) -> None:
        self.now_us = now_us
        self.publish = publish
        self.receivers = receivers
        self.about = about
        self._values: dict[bytes, Value] = {}
        self._expiries: dict[bytes, int] = {}

    # One key ----------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.now_us() // 1000

    def find(self, key: bytes) -> Value | None:
        expiry = self._expiries.get(key)
        if expiry is not None and self.now_us() // 1000 > expiry:
            self.remove(key)
            return None
        return self._values.get(key)

    def text(self, key: bytes) -> bytes | None:
        value = self.find(key)
        if value is None or type(value) is bytes:
            return value
        raise wrong_type()

    def collection(self, key: bytes, kind: type[Collection]) -> Collection | None:
        value = self.find(key)
        if value is None or type(value) is kind:
            return value
        raise wrong_type()

    def collection_for_writing(self, key: bytes, kind: type[Collection]) -> Collection:
        """There afterwards; whoever asks puts something into it."""
        value = self.collection(key, kind)
        if value is None:
            value = kind()
            self._values[key] = value
        return value

    def put(self, key: bytes, value: bytes, expiry_ms: int | None) -> None:
        self._values[key] = value
        if expiry_ms is None:
            self._expiries.pop(key, None)
        else:
            self._expiries[key] = expiry_ms

    def replace(self, key: bytes, value: bytes) -> None:
        """Its expiry stays."""
        self._values[key] = value

    def remove(self, key: bytes) -> None:
        """Of a key that is there."""
        del self._values[key]
        self._expiries.pop(key, None)

    def expiry_ms(self, key: bytes) -> int | None:
        return self._expiries.get(key)

    def expire_at(self, key: bytes, expiry_ms: int) -> None:
        self._expiries[key] = expiry_ms

    def touch(self, key: bytes) -> None:
        """What it has was changed in its place: who replicates is told."""

    def persist(self, key: bytes) -> bool:
        return self._expiries.pop(key, None) is not None

    # All of them ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """With those that nobody has looked at since they expired, as DBSIZE counts."""
        return len(self._values)

    def keys(self) -> list[bytes]:
        """Those that are alive, sorted. Looking changes nothing."""
        now = self.now_ms()
        expiries = self._expiries
        return sorted([key for key in self._values if key not in expiries or expiries[key] >= now])

    def clear(self) -> None:
        self._values.clear()
        self._expiries.clear()

    def sweep(self) -> None:
        """Remove all that have expired, as a server does in the background."""
        now = self.now_ms()
        for key in [key for key, expiry in self._expiries.items() if now > expiry]:
            self.remove(key)

    def snapshot(self) -> Snapshot:
        return _copied(self._values), self._expiries.copy()

    def restore(self, snapshot: Snapshot) -> None:
        values, expiries = snapshot
        self._values = _copied(values)
        self._expiries = expiries.copy()

    def fingerprint(self) -> Hashable:
        """Two databases with the same one behave the same if their clocks go on in step; expiries count from now.

        Except for the order in which a hash tells its fields, which Redis does not promise either.
        """
        now = self.now_us()
        expiries = self._expiries
        return tuple(
            (key, _frozen(value), expiries[key] * 1000 - now if key in expiries else None)
            for key, value in sorted(self._values.items())
        )


def _copied(values: dict[bytes, Value]) -> dict[bytes, Value]:
    return {key: value if isinstance(value, bytes) else value.copy() for key, value in values.items()}


def _frozen(value: Value) -> Hashable:
    if isinstance(value, SortedSet):
        return tuple(value.in_order())
    return value if isinstance(value, bytes) else ("hash", *sorted(value.items()))
