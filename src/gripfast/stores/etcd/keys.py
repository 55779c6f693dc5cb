"""Which keys there are below a root, and what each is for. Pure.

| key | what it is |
|---|---|
| `name/owner` | a holder of the lock, or a waiter: the queue of the name, in the order of their creation |
| `name%semaphore/owner`, `name%rwlock/owner` | the same queues for permits |
| `name%limit` | the limit of a semaphore |
| `name%broken/owner` | this owner was released by force; its value is what the operator wrote |
| `%layout` | the number of the layout (`stores/layout.py`) |

A name is quoted: `%` becomes `%25` and `/` becomes `%2F`. `etcdctl lock a` waits for every key below `a/`, so a lock of
the name `a/b` must not be there. And no name becomes a key of another kind: behind a percent sign it has two digits.

A root is empty or ends with a slash. So no key belongs to two roots, and who may read and write all keys that begin
with the root may use its locks.
"""

from __future__ import annotations

from gripfast.core.kept import DONE, MIN_HOLD
from gripfast.core.ports import Kind


def quoted(name: str) -> str:
    """Of a part of a name, too: what two parts become is what both together become."""
    return name.replace("%", "%25").replace("/", "%2F")


def unquoted(text: str) -> str | None:
    """None if no name becomes this."""
    name = text.replace("%2F", "/").replace("%25", "%")
    return name if quoted(name) == text else None


class Keys:
    def __init__(self, root: str) -> None:
        self.root = root
        self.layout = f"{root}%layout".encode()

    def start(self, prefix: str) -> bytes:
        """What the keys of all names with this prefix begin with."""
        return f"{self.root}{quoted(prefix)}".encode()

    def queue(self, name: str, kind: Kind | None = None) -> bytes:
        """What the keys of all holders and waiters of a name begin with."""
        return f"{self.root}{quoted(name)}{'' if kind is None else f'%{kind}'}/".encode()

    def own(self, name: str, owner: str, kind: Kind | None = None) -> bytes:
        """A marker (`core/kept.py`) has the key of the lease that it was."""
        return self.queue(name, kind) + owner.removeprefix(MIN_HOLD).removeprefix(DONE).encode()

    def broken(self, name: str, owner: str) -> bytes:
        return f"{self.root}{quoted(name)}%broken/{owner}".encode()

    def limit(self, name: str) -> bytes:
        return f"{self.root}{quoted(name)}%limit".encode()

    def name_in(self, key: bytes, kind: Kind | None = None) -> str | None:
        """Of a holder or waiter; None if it is no such key."""
        try:
            text = queue_in(key).decode().removeprefix(self.root).removesuffix("/")
        except UnicodeDecodeError:
            return None
        suffix = "" if kind is None else f"%{kind}"
        return unquoted(text.removesuffix(suffix)) if text.endswith(suffix) and text != suffix else None


def owner_in(key: bytes) -> str:
    """Other programs may put there what they like."""
    return key.rpartition(b"/")[2].decode(errors="replace")


def queue_in(key: bytes) -> bytes:
    """Empty if it is in none."""
    return key[: key.rfind(b"/") + 1]


def after(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with this; a zero byte, which means no end, if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"
