"""The texts for read/write locks in sessions that each database gives, and what they answer."""

from __future__ import annotations

from typing import Protocol

from gripfast.stores.sql.statement import Query, Value


class RWScripts(Protocol):
    """As the texts of `Scripts` for locks in sessions, with a mode each: `row` or `advisory`. Names carry the prefix
    already.

    Where the engine's own queue does not keep readers behind a writer that waits for long, there is a *turnstile*
    before the lock. A reader passes it and leaves it at once. A writer has it from before it waits for the readers
    until it frees the lock. So only those readers are waited for that came before the writer, also if the wait has to
    be begun anew meanwhile.
    """

    def key(self, mode: str, database: str, name: str, /) -> Value:
        """What the lock is called in the engine, if it is no row."""
        ...

    def turnstile(self, mode: str, database: str, name: str, /) -> Value: ...

    def make(self, name: str, /) -> list[Query]:
        """On a shared connection: the row to be locked, committed."""
        ...

    def try_read(self, mode: str, name: str, key: Value, turn: Value, ttl_us: int, /) -> list[Query]:
        """As `Scripts.row_try` or `Scripts.advisory_try`."""
        ...

    def try_write(self, mode: str, name: str, key: Value, turn: Value, ttl_us: int, /) -> list[Query]: ...

    def wait_read(self, mode: str, name: str, key: Value, turn: Value, ttl_us: int, wait_us: int, /) -> list[Query]:
        """As `Scripts.row_wait` or `Scripts.advisory_wait`."""
        ...

    def wait_write(self, mode: str, name: str, key: Value, turn: Value, ttl_us: int, wait_us: int, /) -> list[Query]:
        """The turnstile is kept when the time is over. The server ends a session that has it and is silent."""
        ...

    def wait_again(self, mode: str, /) -> list[Query]:
        """Before an attempt after one that was refused as busy: the turnstile is kept."""
        ...

    def free(self, mode: str, /) -> list[Query]:
        """Everything, whatever there is: (1). The session is as it was when it was opened."""
        ...

    def release(self, mode: str, name: str, owner: str, n: int, key: Value, /) -> list[Query]:
        """As `free`, and nobody sees the holder any more. (1) if the session had the lock until then."""
        ...

    def grant(
        self, mode: str, name: str, owner: str, n: int, session: int, mark: Value, ttl_us: int, holder: str, /
    ) -> list[Query]:
        """As `Scripts.grant`. A writer removes what is left of earlier holders."""
        ...

    def set_ttl(self, mode: str, name: str, owner: str, ttl_us: int, /) -> list[Query]: ...

    def lower(self, mode: str, name: str, key: Value, ttl_us: int, /) -> list[Query]:
        """The first step of a downgrade: (1, mark). The session has the lock shared now. No writer gets it in between,
        because the turnstile is kept, or because the lock was had at every moment."""
        ...

    def note_lowered(self, mode: str, name: str, owner: str, mark: Value, /) -> list[Query]:
        """The second one, on a shared connection: others see a reader."""
        ...

    def leave_turnstile(self, mode: str, turn: Value, /) -> list[Query]:
        """The last one, if the first has not done it: (1)."""
        ...

    def inspect(self, mode: str, name: str, limit: int, /) -> list[Query]:
        """As `PermitScripts.inspect`, on a shared connection: those who have the lock now."""
        ...

    def page(self, mode: str, after: str, prefix: str, count: int, limit: int, /) -> list[Query]:
        """As `PermitScripts.page`; of a name that nobody has, a row with an owner of NULL."""
        ...

    def end_holder(self, mode: str, name: str, owner: str, /) -> list[Query]:
        """As `Scripts.end_holder`, without a gid."""
        ...

    def sweep(self, mode: str, count: int, idle_us: int, /) -> list[Query]:
        """As `Scripts.sweep_sessions`; what is left of dead holders of these names goes, too."""
        ...
