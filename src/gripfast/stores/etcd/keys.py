"""Which keys there are, and what each is for. Pure.

| key | what it is |
|---|---|
| `name/owner` | a holder of the lock, or a waiter: the queue of the name, in the order of their creation |
| `name%broken/owner` | this owner was released by force; its value is what the operator wrote |
| `name%semaphore/owner`, `name%rwlock/owner` | the same queues for permits |
| `name%limit` | the limit of a semaphore |
| `%gripfast/layout` | the number of the layout (`stores/layout.py`) |

A name is quoted: `%` becomes `%25` and `/` becomes `%2F`. `etcdctl lock a` waits for every key below `a/`, so a lock of
the name `a/b` must not be there. And no name becomes a key of another kind: behind a percent sign it has two digits.

All keys of a name begin with the name, and so with the client's prefix: rights for that prefix, and for
`%gripfast/layout`, are enough.
"""

from __future__ import annotations

from gripfast.core.kept import DONE, MIN_HOLD
from gripfast.core.ports import Kind

LAYOUT = b"%gripfast/layout"


def quoted(name: str) -> str:
    """Of a part of a name, too: what two parts become is what both together become."""
    return name.replace("%", "%25").replace("/", "%2F")


def unquoted(text: str) -> str | None:
    """None if no name becomes this."""
    name = text.replace("%2F", "/").replace("%25", "%")
    return name if quoted(name) == text else None


def queue(name: str, kind: Kind | None = None) -> bytes:
    """What all keys of holders and waiters begin with."""
    return f"{quoted(name)}{'' if kind is None else f'%{kind}'}/".encode()


def own(name: str, owner: str, kind: Kind | None = None) -> bytes:
    """A marker (`core/kept.py`) has the key of the lease that it was."""
    return queue(name, kind) + owner.removeprefix(MIN_HOLD).removeprefix(DONE).encode()


def broken(name: str, owner: str) -> bytes:
    return f"{quoted(name)}%broken/{owner}".encode()


def limit(name: str) -> bytes:
    return f"{quoted(name)}%limit".encode()


def owner_in(key: bytes) -> str:
    """Other programs may put there what they like."""
    return key.rpartition(b"/")[2].decode(errors="replace")


def queue_in(key: bytes) -> bytes:
    return key[: key.rindex(b"/") + 1] if b"/" in key else b""


def name_in(key: bytes, kind: Kind | None = None) -> str | None:
    """Of a holder or waiter; None if it is no such key."""
    try:
        text = queue_in(key).decode().removesuffix("/")
    except UnicodeDecodeError:
        return None
    if kind is not None:
        text, found = text.removesuffix(f"%{kind}"), text.endswith(f"%{kind}")
        if not found:
            return None
    return unquoted(text) if text else None


def after(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with this; a zero byte, which means no end, if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"
