"""The texts for semaphores and read/write locks that each database gives, and what they answer."""

from __future__ import annotations

from typing import Protocol

from gripfast.stores.sql.statement import Query


class PermitScripts(Protocol):
    """A step is a transaction of two requests: `begin` locks the name and answers with what is there; what was decided
    is written by the others, in one request that ends with `commit`. Times are microseconds since the epoch by the
    engine's own clock. Names carry the prefix already.
    """

    def begin(self, kind: str, name: str, idle_us: int, /) -> list[Query]:
        """Locks the name, and deletes its holders whose time is over. The last three answers are: (token, permits,
        since_us, now_us), or no row if nobody knows the name; (owner, n, slots, token, expires_us, ttl_us, since_us,
        holder, broken) of its holders; (ticket, owner, n, ttl_us, seen_us, holder, channel, is_deaf) of its waiters,
        the first one first. The server ends a transaction that is silent for `idle_us`."""
        ...

    def begin_waiting(self, kind: str, name: str, idle_us: int, wait_us: int, /) -> list[Query]:
        """As `begin`, but waits for whoever has the name locked as `Scripts.renew_waiting` does: so long at most."""
        ...

    def begin_new(self, kind: str, name: str, idle_us: int, /) -> list[Query]:
        """As `begin`; makes the name first if need be. It may be forgotten in the same moment, all the same."""
        ...

    def look(self, kind: str, name: str, /) -> list[Query]:
        """The same answers as those of `begin`, holders whose time is over included. Locks nothing."""
        ...

    def write_name(self, kind: str, name: str, token: int, permits: int, since_us: int, /) -> list[Query]: ...

    def write_holder(
        self,
        kind: str,
        name: str,
        owner: str,
        n: int,
        slots: str,
        token: int,
        expires_us: int,
        ttl_us: int,
        since_us: int,
        holder: str,
        /,
    ) -> list[Query]:
        """Never lowers the end of what has this token already: it may have been renewed a moment ago."""
        ...

    def delete_holder(self, kind: str, name: str, owner: str, /) -> list[Query]: ...

    def break_holder(self, kind: str, name: str, owner: str, note: str, /) -> list[Query]:
        """It has nothing any more, but is remembered until its time is over."""
        ...

    def write_waiter(
        self,
        kind: str,
        name: str,
        owner: str,
        ticket: int,
        n: int,
        ttl_us: int,
        seen_us: int,
        holder: str,
        channel: str,
        session: int,
        /,
    ) -> list[Query]:
        """`session`: the one that listens to the channel. Without a channel it is the session of this request. A waiter
        that is there keeps its ticket and its n."""
        ...

    def delete_waiter(self, kind: str, name: str, owner: str, /) -> list[Query]: ...

    def notify(self, channel: str, owner: str, /) -> list[Query]:
        """When the step is committed."""
        ...

    def commit(self) -> list[Query]: ...

    def rollback(self) -> list[Query]: ...

    def renew(self, kind: str, name: str, owner: str, ttl_us: int, shortens: bool, /) -> list[Query]:
        """As `Scripts.renew`."""
        ...

    def renew_waiting(
        self, kind: str, name: str, owner: str, ttl_us: int, shortens: bool, wait_us: int, /
    ) -> list[Query]:
        """As `Scripts.renew_waiting`."""
        ...

    def why(self, kind: str, name: str, owner: str, /) -> list[Query]:
        """(reason, note): broken, expired, or held; no row is expired."""
        ...

    def inspect(self, kind: str, name: str, /) -> list[Query]:
        """(name, permits, owner, n, slots, token, expires_in_us, since_us, holder) of each holder, by token."""
        ...

    def page(self, kind: str, after: str, prefix: str, count: int, /) -> list[Query]:
        """The same of the next `count` names, in order; of one that nobody has, a row with an owner of NULL."""
        ...

    def begin_sweep(self, count: int, memory_us: int, idle_us: int, /) -> list[Query]:
        """Locks up to `count` names that were not looked at for `memory_us`, those excepted that somebody has locked.
        (kind, name, token, since_us, is_held, now_us) of each."""
        ...

    def forget(self, kind: str, name: str, /) -> list[Query]: ...

    def write_checked(self, kind: str, name: str, checked_us: int, /) -> list[Query]: ...
